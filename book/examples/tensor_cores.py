"""Scores by `mma.sync`: on a GPU's tensor cores, or by what a lane holds, on a CPU."""

from pathlib import Path

import torch

from yaie.cuda import CudaLibrary

library = CudaLibrary(Path(__file__).parent / "mma")
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(0)
queries, keys = (torch.randn(rows, 64, device=device).bfloat16() for rows in (32, 24))
scores = torch.full((32, 24), torch.nan, device=device)
library.call("score", queries, keys, scores, 32, 24, 64)

expected = queries.double() @ keys.double().T
print(f"{scores.numel()} scores, on a {device}; {(scores - expected).abs().max():.0e} from float64")
