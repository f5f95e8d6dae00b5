"""Asks weights the questions that choose among them: python -m book.tutor.judge NAME=FOLDER --out FOLDER

Beside the questions of `phrasings/validation.toml` these are two sets of `evaluate` that further
training may forget: prompts on things that no conversation mentions, which must be refused, and unusual
ways to ask for a reason. Each candidate's figures are written to NAME.json as it ends.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from book.tutor.evaluate import BATCH, Tutor, judge_questions, judge_unknown
from book.tutor.held_out import unusual_whys
from book.tutor.unseen import KINDS, Unseen, judge_unseen, validation_questions
from yaie.system.files import write_whole

GPU_BATCH = 256


def on_device(weights: Path, device: str) -> Tutor:
    """The tutor of these weights, with a batch that suits the device."""
    return Tutor(weights, device, GPU_BATCH if device.startswith("cuda") else BATCH)


def some(questions: tuple[Unseen, ...], most: int) -> tuple[Unseen, ...]:
    """All of them, or the first of each kind."""
    if not most:
        return questions
    return tuple(q for kind in KINDS for q in [q for q in questions if q.kind == kind][:most])


def judge(tutor: Tutor, most: int = 0) -> dict[str, Any]:
    """The figures of `judge_unseen` for the validation questions, `unknown_refused` and `unusual_whys`.

    most: questions of each kind; 0: all.
    """
    figures = judge_unseen(tutor, some(validation_questions(), most))
    whys = unusual_whys()[: most or None]
    return figures | {
        "unknown_refused": judge_unknown(tutor, most)["refused"],
        "unusual_whys": judge_questions(tutor, whys, "unusual whys")["right"],
    }


def main(argv: list[str] | None = None) -> None:
    """Judge one after the other."""
    parser = argparse.ArgumentParser(
        description="Ask weights the questions that choose among them."
    )
    parser.add_argument("weights", nargs="+", metavar="NAME=FOLDER")
    parser.add_argument("--out", type=Path, required=True, help="folder for NAME.json")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--questions", type=int, default=0, help="of each kind; 0: all")
    args = parser.parse_args(argv)
    for one in args.weights:
        name, equals, folder = one.partition("=")
        if not equals:
            parser.error(f"{one!r} is no NAME=FOLDER")
        figures = judge(on_device(Path(folder), args.device), args.questions)
        args.out.mkdir(parents=True, exist_ok=True)
        text = json.dumps(figures, indent=1, ensure_ascii=False) + "\n"
        write_whole(args.out / f"{name}.json", text)


if __name__ == "__main__":
    main()
