"""Trains the tutor further and judges what comes out, in one go: python -m book.tutor.retrain --help

    training      `train`, from the weights of `--init`, once for each of `--seeds`
    candidates    what came out, their mean, and means with the weights before (`candidates`)
    choosing      each answers `phrasings/validation.toml` (`judge`); the one with most right answers
                  wins, unless it forgot to refuse unknown things or to answer unusual whys
    evaluating    the winner is asked all questions of `evaluate`, and `--init` the unseen ones;
                  meanwhile two processes distil a draft model and an MTP head from the winner

What runs side by side is shared out among the GPUs that this process sees: one is enough for one seed.
`--out` has at the end, in `tutor/`, what belongs into `yaie/models/tutor`. Each stage writes as it ends,
and the same command goes on behind trainings that have ended. Counts are printed, and never a question
that was missed.
"""

import argparse
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import torch

from book.tutor.average import LOG
from book.tutor.candidates import BEFORE, best_of, candidates, write_candidate
from book.tutor.card import write_card
from book.tutor.evaluate import evaluate
from book.tutor.jobs import Clock, Job, Launch, Process, gpus
from book.tutor.judge import on_device, some
from book.tutor.unseen import KINDS, Unseen, judge_unseen, validation_questions
from yaie.models.tutor import TUTOR_DIR, TUTOR_PATH
from yaie.system.files import write_whole

HOW = "--batch 32 --lr 1.4e-3 --dropout 0.06 --first-word 3 --mean --systems 0.35"
"""The options of the training, but for its seed and length."""
KEPT = 3
RATES = {"draft": 2e-3, "mtp": 1e-3}
STUDENT_START = 25.0
"""Seconds that a student takes beside those of `distill --seconds`: imports, agreement, writing."""
PACKING = 20.0
LEAST_DISTILLING = 40.0
LEAST_JUDGING = 20.0


def _json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _write(path: Path, value: Any) -> None:
    write_whole(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def train_further(args: argparse.Namespace, clock: Clock, launch: Launch) -> tuple[Path, ...]:
    """The folders of the trainings that ended well; raises SystemExit if there is none."""
    runs = {seed: args.out / f"train-{seed}" for seed in dict.fromkeys(args.seeds)}
    missing = [seed for seed, out in runs.items() if not (out / LOG).exists()]
    processes = _processes(args) // max(1, len(missing))
    # A training ends by its own clock; the rest is for its start and for what it writes.
    end = clock.now + args.seconds + 120
    jobs = {}
    for number, seed in enumerate(missing):
        argv = ["--init", str(args.init), "--out", str(runs[seed]), "--keep", str(KEPT)]
        argv += [*HOW.split(), *args.how.split(), "--processes", str(max(1, processes))]
        argv += ["--seed", str(seed), "--seconds", str(args.seconds)]
        jobs[seed] = launch("train", argv, _gpu(number))
    for seed, job in jobs.items():
        if not job.wait(end - clock.now):
            clock.say(f"the training with seed {seed} failed: see its output above")
            (runs[seed] / LOG).unlink(missing_ok=True)
    ended = tuple(out for out in runs.values() if (out / LOG).exists())
    if not ended:
        raise SystemExit("The training failed: see its output above.")
    return ended


def _processes(args: argparse.Namespace) -> int:
    return args.processes or os.cpu_count() or 1


def _gpu(number: int) -> str:
    """The GPU of that stage of several that run side by side."""
    names = gpus()
    return names[number % len(names)]


def counts(figures: dict[str, Any], questions: tuple[Unseen, ...]) -> str:
    """The number of right answers in all and by kind, and what must not be forgotten."""
    parts = [f"{round(figures['right'] * len(questions))} of {len(questions)}"]
    for kind in KINDS:
        number = sum(question.kind == kind for question in questions)
        if number:
            parts.append(f"{kind} {round(figures[kind] * number)}/{number}")
    kept = [f"{name} {figures[name]:.1%}" for name in ("unknown_refused", "unusual_whys")]
    return ", ".join(parts + kept)


def choose(
    args: argparse.Namespace, trained: tuple[Path, ...], clock: Clock, launch: Launch
) -> Path:
    """The folder of the best candidate; raises SystemExit if none could be judged."""
    folders = {BEFORE: args.init}
    for one in candidates(trained):
        folders[one.name] = write_candidate(one, args.init, args.out / "candidates")
    out = args.out / "judged"
    shutil.rmtree(out, ignore_errors=True)
    names, places = list(folders), len(gpus())
    jobs = []
    for place in range(min(places, len(names))):
        argv = [f"{name}={folders[name]}" for name in names[place::places]]
        argv += ["--out", str(out), "--device", args.device, "--questions", str(args.questions)]
        jobs.append(launch("judge", argv, _gpu(place)))
    for job in jobs:
        # Of a process that must be ended, what it has judged so far counts.
        job.wait(max(LEAST_JUDGING, clock.left - args.distil - STUDENT_START - PACKING))
    judged = {name: _json(path) for name in names if (path := out / f"{name}.json").exists()}
    questions = some(validation_questions(), args.questions)
    for name in names:
        clock.say(f"{name}: {counts(judged[name], questions)}" if name in judged else f"no {name}")
    _write(args.out / "validation.json", judged)
    try:
        best = best_of(judged)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    clock.say(f"chosen: {best}")
    if judged[best]["right"] <= judged.get(BEFORE, {"right": 0})["right"]:
        clock.say("The weights before answer as many of the validation questions, or more.")
    return folders[best]


def distil(args: argparse.Namespace, tutor: Path, clock: Clock, launch: Launch) -> dict[str, Job]:
    """Starts the students, for as long as is left."""
    seconds = min(args.distil, clock.left - STUDENT_START - PACKING)
    if seconds < min(args.distil, LEAST_DISTILLING):
        clock.say("No time is left to distil: run book.tutor.distill later.")
        return {}
    clock.say(f"distilling both for {seconds:.0f} s")
    jobs = {}
    for number, (kind, rate) in enumerate(RATES.items()):
        argv = ["--kind", kind, "--teacher", str(tutor), "--init", str(TUTOR_DIR / kind)]
        argv += ["--out", str(args.out / "tutor" / kind), "--lr", str(rate)]
        argv += [
            "--processes",
            str(max(1, _processes(args) // len(RATES))),
            *args.how_distil.split(),
        ]
        jobs[kind] = launch("distill", [*argv, "--seconds", f"{seconds:.0f}"], _gpu(number))
    return jobs


def compare(args: argparse.Namespace, tutor: Path, clock: Clock) -> None:
    """All figures of the new weights, and the unseen questions of both, each asked once.

    On the GPU behind those of the students, if there is one.
    """
    device = args.device
    if device == "cuda":
        device = f"cuda:{len(RATES) % len(gpus())}"
    result = evaluate(on_device(tutor, device))
    _write(args.out / "tutor" / "evaluation.json", result)
    before = judge_unseen(on_device(args.init, device))
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
        "--seeds", type=int, nargs="+", default=[29], help="of trainings that run side by side"
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
    parser.add_argument(
        "--processes",
        type=int,
        default=0,
        help="that write text, shared by what runs; 0: all cores",
    )
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
    trained = train_further(args, clock, launch)
    clock.say("choosing")
    chosen = choose(args, trained, clock, launch)
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
