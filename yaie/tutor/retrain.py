"""Trains the tutor further and judges what comes out, in one go: python -m yaie.tutor.retrain --help

    training      `train`, from the weights of `--init`: the mean of the last ones, the last, some before
    candidates    these, and means with the weights before (`average`)
    choosing      each answers `phrasings/validation.toml`; the one with most right answers wins
    evaluating    the winner is asked all questions of `evaluate`, and `--init` the unseen ones;
                  meanwhile two processes distil a draft model and an MTP head from the winner

For one GPU. `--out` has at the end, in `tutor/`, what belongs into `yaie/tutor`. Each stage writes as it
ends, and the same command goes on behind a training that has ended. Counts are printed, and never a
question that was missed.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from yaie.core.files import write_whole
from yaie.tutor import TUTOR_DIR, TUTOR_PATH
from yaie.tutor.average import LOG, WEIGHTS, average
from yaie.tutor.card import write_card
from yaie.tutor.evaluate import BATCH, Tutor, evaluate
from yaie.tutor.unseen import KINDS, Unseen, judge_unseen, validation_questions

HOW = "--batch 32 --lr 1.4e-3 --dropout 0.06 --first-word 3 --mean --systems 0.35 --seed 29"
"""The options of the training, but for its length."""
KEPT = 3
RATES = {"draft": 2e-3, "mtp": 1e-3}
GPU_BATCH = 256
STUDENT_START = 25.0
"""Seconds that a student takes beside those of `distill --seconds`: imports, agreement, writing."""
PACKING = 20.0
LEAST_DISTILLING = 40.0


class Job(Protocol):
    """A stage that runs beside this process."""

    def wait(self, timeout: float) -> bool:
        """Whether it ended well within that many seconds; it is ended if it did not."""


class Process:
    """A command of the tutor's package in a process of its own, with what it starts."""

    def __init__(self, module: str, argv: list[str]) -> None:
        command = [sys.executable, "-m", f"yaie.tutor.{module}", *argv]
        self._process = subprocess.Popen(command, start_new_session=True)

    def wait(self, timeout: float) -> bool:
        try:
            return self._process.wait(max(0.1, timeout)) == 0
        except subprocess.TimeoutExpired:
            return False
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()


Launch = Callable[[str, list[str]], Job]


class Clock:
    """Seconds since the command began, and how many are left."""

    def __init__(self, within: float) -> None:
        self.start, self.within = time.perf_counter(), within

    @property
    def now(self) -> float:
        return time.perf_counter() - self.start

    @property
    def left(self) -> float:
        return self.within - self.now

    def say(self, text: str) -> None:
        print(f"[{self.now:4.0f} s] {text}", flush=True)


@dataclass(frozen=True)
class Candidate:
    """Weights that may be chosen: a mean of those before with a `share` of those of the training.

    `is_mean`: these are themselves the mean of the training's last part, and not its last weights.
    """

    name: str
    share: float
    is_mean: bool = True


BEFORE = Candidate("before", 0.0)
CANDIDATES = (
    Candidate("mean", 1.0),
    Candidate("mean-0.75", 0.75),
    Candidate("mean-0.5", 0.5),
    Candidate("last", 1.0, is_mean=False),
    Candidate("last-0.5", 0.5, is_mean=False),
)
"""In this order: of two with as many right answers, the first is chosen."""


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _write(path: Path, value: Any) -> None:
    write_whole(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def train_further(args: argparse.Namespace, launch: Launch) -> Path:
    """The folder of the trained weights; raises SystemExit if the training failed."""
    out: Path = args.out / "train"
    if (out / LOG).exists():
        return out
    argv = ["--init", str(args.init), "--out", str(out), "--keep", str(KEPT), *HOW.split()]
    argv += [*args.how.split(), "--processes", str(args.processes)]
    # Training ends by its own clock; the rest is for its start and for what it writes.
    if not launch("train", [*argv, "--seconds", str(args.seconds)]).wait(args.seconds + 120):
        raise SystemExit("The training failed: see its output above.")
    return out


def write_candidate(one: Candidate, before: Path, trained: Path, out: Path) -> Path:
    """The folder of these weights; its log says, as the card wants to know it, how they came about."""
    if one.share == 0:
        return before
    folder, source = out / one.name, trained
    log = _json(trained / LOG) | {"mean": one.is_mean}
    folder.mkdir(parents=True, exist_ok=True)
    if not one.is_mean:
        source = out / "source-last"
        others = shutil.ignore_patterns("last", "kept-*")
        shutil.copytree(trained, source, ignore=others, dirs_exist_ok=True)
        shutil.copy(trained / "last" / WEIGHTS, source)
    average(before, source, folder, one.share)
    _write(folder / LOG, {"share": one.share, "stages": [log]})
    return folder


def some(questions: tuple[Unseen, ...], most: int) -> tuple[Unseen, ...]:
    """All of them, or the first of each kind."""
    if not most:
        return questions
    return tuple(q for kind in KINDS for q in [q for q in questions if q.kind == kind][:most])


def counts(figures: dict[str, Any], questions: tuple[Unseen, ...]) -> str:
    """The number of right answers in all and by kind."""
    parts = [f"{round(figures['right'] * len(questions))} of {len(questions)}"]
    for kind in KINDS:
        number = sum(question.kind == kind for question in questions)
        if number:
            parts.append(f"{kind} {round(figures[kind] * number)}/{number}")
    return ", ".join(parts)


def _tutor(weights: Path, device: str) -> Tutor:
    return Tutor(weights, device, GPU_BATCH if device.startswith("cuda") else BATCH)


def choose(args: argparse.Namespace, trained: Path, clock: Clock) -> Path:
    """The folder of the candidate with the most right answers to the validation questions."""
    questions = some(validation_questions(), args.questions)
    judged: dict[str, Any] = {}
    folders: dict[str, Path] = {}
    for one in (BEFORE, *CANDIDATES):
        if len(judged) > 2 and clock.left < args.distil + STUDENT_START + PACKING:
            clock.say(f"no time for {one.name}")
            continue
        folder = write_candidate(one, args.init, trained, args.out / "candidates")
        judged[one.name] = judge_unseen(_tutor(folder, args.device), questions)
        folders[one.name] = folder
        clock.say(f"{one.name}: {counts(judged[one.name], questions)}")
        _write(args.out / "validation.json", judged)
    asked = [one for one in CANDIDATES if one.name in judged]
    best = max(asked, key=lambda one: float(judged[one.name]["right"]))
    clock.say(f"chosen: {best.name}")
    if judged[best.name]["right"] <= judged[BEFORE.name]["right"]:
        clock.say("The weights before answer as many of the validation questions, or more.")
    return folders[best.name]


def distil(args: argparse.Namespace, tutor: Path, clock: Clock, launch: Launch) -> dict[str, Job]:
    """Starts the students, for as long as is left."""
    seconds = min(args.distil, clock.left - STUDENT_START - PACKING)
    if seconds < min(args.distil, LEAST_DISTILLING):
        clock.say("No time is left to distil: run yaie.tutor.distill later.")
        return {}
    processes = args.processes or os.cpu_count() or 1
    clock.say(f"distilling both for {seconds:.0f} s")
    jobs = {}
    for kind, rate in RATES.items():
        argv = ["--kind", kind, "--teacher", str(tutor), "--init", str(TUTOR_DIR / kind)]
        argv += ["--out", str(args.out / "tutor" / kind), "--lr", str(rate)]
        argv += ["--processes", str(max(1, processes // len(RATES))), *args.how_distil.split()]
        jobs[kind] = launch("distill", [*argv, "--seconds", f"{seconds:.0f}"])
    return jobs


def compare(args: argparse.Namespace, tutor: Path, clock: Clock) -> None:
    """All figures of the new weights, and the unseen questions of both, each asked once."""
    result = evaluate(_tutor(tutor, args.device))
    _write(args.out / "tutor" / "evaluation.json", result)
    before = judge_unseen(_tutor(args.init, args.device))
    _write(args.out / "before.json", before)
    for name, figures in (("before", before), ("after", result["unseen"])):
        plain = {key: value for key, value in figures.items() if isinstance(value, int | float)}
        clock.say(f"unseen, {name}: {plain}")
    for name, figures in result.items():
        plain = {key: value for key, value in figures.items() if isinstance(value, int | float)}
        clock.say(f"{name}: {plain}")


def pack(folder: Path, clock: Clock) -> None:
    """The folder in one file beside it."""
    path = folder.with_suffix(".tar.xz")
    # Preset 6 would make it 4% smaller, in four times the time.
    with tarfile.open(path, "w:xz", preset=0) as archive:
        archive.add(folder, folder.name)
    clock.say(f"{path}: {path.stat().st_size:,} bytes")


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train the YAIE tutor further and judge it.")
    parser.add_argument("--out", type=Path, required=True, help="folder for all that is written")
    parser.add_argument(
        "--init", type=Path, default=TUTOR_PATH, help="folder of weights to go on from"
    )
    parser.add_argument(
        "--seconds", type=float, default=310, help="of training, its start included"
    )
    parser.add_argument("--distil", type=float, default=120, help="seconds of distilling, at most")
    parser.add_argument("--within", type=float, default=550, help="seconds for all of it")
    parser.add_argument(
        "--how", default="", help=f"options of the training after {HOW}, as in --how=--eager"
    )
    parser.add_argument("--how-distil", default="", help="further options of the distillation")
    parser.add_argument("--processes", type=int, default=0, help="that write text; 0: all cores")
    parser.add_argument(
        "--questions", type=int, default=0, help="of each kind to choose by; 0: all"
    )
    parser.add_argument("--no-evaluation", action="store_true", help="for a trial: no card either")
    parser.add_argument("--pack", action="store_true", help="also write tutor.tar.xz")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None, launch: Launch = Process) -> None:
    """All stages in turn."""
    args = parse_args(argv)
    clock = Clock(args.within)
    clock.say(f"training for {args.seconds:g} s")
    trained = train_further(args, launch)
    clock.say("choosing")
    chosen = choose(args, trained, clock)
    tutor = args.out / "tutor" / "weights"
    shutil.copytree(chosen, tutor, dirs_exist_ok=True)
    jobs = distil(args, tutor, clock, launch)
    try:
        if not args.no_evaluation:
            compare(args, tutor, clock)
    finally:
        ended = {kind: job.wait(clock.left - PACKING) for kind, job in jobs.items()}
    for kind, is_well in ended.items():
        log = args.out / "tutor" / kind / "distill_log.json"
        agreement = _json(log)["agreement_by_depth"] if is_well else "failed, or out of time"
        clock.say(f"{kind}: {agreement}")
    if not args.no_evaluation:
        write_card(tutor, _json(args.out / "tutor" / "evaluation.json"))
    if args.pack:
        pack(args.out / "tutor", clock)
    clock.say("done")


if __name__ == "__main__":
    main()
