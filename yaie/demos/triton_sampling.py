"""Lab 12: the same tokens as lab 1, without a sort."""

from functools import partial

import torch

from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.demos.shown import Row, Shown, row
from yaie.demos.subject import Subject
from yaie.demos.tensors import generator
from yaie.demos.traffic import Traffic, interpreted, of_torch, of_triton
from yaie.explore.sampling import sampling_batch

ROWS, VOCAB = 8, 4096
KINDS = {
    "temperature": SamplingParams(temperature=1.0),
    "top-p 0.9": SamplingParams(temperature=1.0, top_p=0.9),
    "top-k 40": SamplingParams(temperature=1.0, top_k=40),
}


def show(subject: Subject) -> Shown:
    """A token for each of some rows, by lab 1 and by kernels."""
    interpreted()
    plain_part = subject.reference("sampler").Sampler()
    kernels = subject.package.Sampler()
    logits = 2 * torch.randn(ROWS, VOCAB, generator=generator())
    rows: list[Row] = []
    totals = [0, 0]
    equal = 0
    for name, params in KINDS.items():
        requests = [Request(f"r{seed}", [0], params, seed=seed) for seed in range(ROWS)]
        batch = sampling_batch(requests, VOCAB)
        for_torch, for_kernels = logits.clone(), logits.clone()
        expected, plain = of_torch(partial(plain_part.sample, for_torch, batch))
        found, own = of_triton(partial(kernels.sample, for_kernels, batch))
        equal += int((expected == found).sum())
        rows += _rows(name, plain, own)
        totals = [total + one.moved for total, one in zip(totals, (plain, own), strict=True)]
    count = ROWS * len(KINDS)
    return Shown(
        f"{ROWS} rows of {VOCAB:,} logits ({logits.nbytes:,} bytes), in Triton's interpreter.",
        ("lab 1", "kernels"),
        (*rows, row("the same tokens", "", f"{equal} of {count}")),
        f"{totals[1]:,} bytes are moved in place of {totals[0]:,}, for {equal} of {count} tokens as lab "
        "1 draws them.",
    )


def _rows(name: str, plain: Traffic, own: Traffic) -> tuple[Row, Row]:
    return (
        row(f"{name}: launches", plain.launches, own.launches),
        row(f"{name}: bytes", plain.moved, own.moved),
    )
