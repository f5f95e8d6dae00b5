"""The mean of two trainings of one model: python -m yaie.tutor.average FIRST SECOND --out FOLDER

Where one goes on from the other, the mean of both is often better than either (model soups, Wortsman
et al. 2022). `training_log.json` is then the list of both logs, as "stages".
"""

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from yaie.core.files import write_whole

WEIGHTS, LOG = "model.safetensors", "training_log.json"


def average(first: Path, second: Path, out: Path, share: float = 0.5) -> None:
    """Write `out`: the files of `second`, with weights that are the mean, rounded as they were.

    share: between 0 and 1, what the second counts.

    Raises ValueError if the two are not of one shape.
    """
    one, other = load_file(first / WEIGHTS), load_file(second / WEIGHTS)
    shapes, others = ({name: w.shape for name, w in each.items()} for each in (one, other))
    if shapes != others:
        raise ValueError(f"{first} and {second} hold other weights: only one model has a mean.")
    mean = {
        name: torch.lerp(weight.float(), other[name].float(), share).to(weight.dtype)
        for name, weight in one.items()
    }
    out.mkdir(parents=True, exist_ok=True)
    for path in second.glob("*.json"):
        shutil.copy(path, out)
    save_file({name: w.contiguous() for name, w in mean.items()}, out / WEIGHTS, {"format": "pt"})
    logs = [json.loads((folder / LOG).read_text(encoding="utf-8")) for folder in (first, second)]
    write_whole(out / LOG, json.dumps({"share": share, "stages": logs}, indent=1) + "\n")


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Average two trainings of one model.")
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path, help="went on from the first")
    parser.add_argument("--share", type=float, default=0.5, help="what the second counts, 0 to 1")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args(argv)
    average(args.first, args.second, args.out, args.share)


if __name__ == "__main__":
    main()
