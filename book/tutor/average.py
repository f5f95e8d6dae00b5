"""The mean of trainings of one model: python -m book.tutor.average FIRST SECOND ... --out FOLDER

Where one goes on from the other, the mean of both is often better than either (model soups, Wortsman
et al. 2022). Where several go on from the first side by side, their mean stands for the second.
`training_log.json` is then the list of all logs, as "stages".
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from yaie.system.files import write_whole

WEIGHTS, LOG = "model.safetensors", "training_log.json"


def average(
    first: Path, second: Path, out: Path, share: float = 0.5, beside: tuple[Path, ...] = ()
) -> None:
    """Write `out`: the files of `second`, with weights that are the mean, rounded as they were.

    share: between 0 and 1, what the second counts.
    beside: further trainings; the second is averaged with them beforehand, each counting the same.

    Raises ValueError if they are not of one shape.
    """
    one, *rest = (load_file(folder / WEIGHTS) for folder in (first, second, *beside))
    shapes = {name: w.shape for name, w in one.items()}
    for folder, other in zip((second, *beside), rest, strict=True):
        if {name: w.shape for name, w in other.items()} != shapes:
            raise ValueError(f"{first} and {folder} hold other weights: only one model has a mean.")
    mean = {
        name: torch.lerp(
            weight.float(), torch.stack([other[name].float() for other in rest]).mean(dim=0), share
        ).to(weight.dtype)
        for name, weight in one.items()
    }
    out.mkdir(parents=True, exist_ok=True)
    for path in second.glob("*.json"):
        shutil.copy(path, out)
    save_file({name: w.contiguous() for name, w in mean.items()}, out / WEIGHTS, {"format": "pt"})
    folders = (first, second, *beside)
    logs = [json.loads((folder / LOG).read_text(encoding="utf-8")) for folder in folders]
    write_whole(out / LOG, json.dumps({"share": share, "stages": logs}, indent=1) + "\n")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Average trainings of one model.")
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path, nargs="+", help="went on from the first")
    parser.add_argument("--share", type=float, default=0.5, help="what the second counts, 0 to 1")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    second, *beside = args.second
    average(args.first, second, args.out, args.share, tuple(beside))


if __name__ == "__main__":
    main()
