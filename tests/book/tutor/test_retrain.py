"""Training further, choosing, evaluating and distilling in one go, on what a CPU does in seconds.

Stages train for a few steps each; at night also by the clock.
"""

import contextlib
import functools
import io
import json
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from book.tutor import corpus, distill, evaluate, judge, retrain, train
from book.tutor.average import LOG, WEIGHTS
from book.tutor.batches import SHUFFLED_SHARDS, Batch
from book.tutor.candidates import best_of, candidates, write_candidate
from book.tutor.dialogues import dialogues
from book.tutor.jobs import Clock, Process, gpus
from book.tutor.judge import some
from book.tutor.unseen import judge_unseen, validation_questions
from yaie.models.tutor import TUTOR_DIR, TUTOR_PATH

MODULES = {"train": train, "distill": distill, "judge": judge}
TINY = "--seconds 6 --distil 6 --processes 1 --questions 1 --seeds 29 30".split()
NAMES = ("soup", "soup-0.85", "soup-0.75", "soup-0.5", "train-29-alone", "train-30-alone")
TINY += ["--how=--batch 1 --eager", "--how-distil=--batch 1 --eager"]
STEPS = 4
"""The fewest of which the mean is not the last weights, and all that `--keep` writes is written."""
FIT = train.Trainer.fit


class Here:
    """A job that this process does at once, so that what a test patches holds for it, too."""

    def __init__(self, module: str, argv: list[str], gpu: str = "") -> None:
        MODULES[module].main(argv)

    def wait(self, timeout: float) -> bool:
        return timeout > 0


def asked_little(tutor: evaluate.Tutor) -> dict[str, Any]:
    """The recorded figures, for the card, with those of a few questions that are really asked."""
    recorded = json.loads((TUTOR_DIR / "evaluation.json").read_text(encoding="utf-8"))
    figures = judge_unseen(tutor, some(validation_questions(), 1))
    return recorded | {"unseen": recorded["unseen"] | {"right": figures["right"]}}


def few_steps(trainer: train.Trainer, data: Iterator[Batch], deadline: float | None = None) -> int:
    """Instead of training until the deadline."""
    assert deadline is not None
    trainer.args.steps = STEPS
    return FIT(trainer, data)


@pytest.fixture(scope="module")
def tiny() -> Iterator[None]:
    """Texts, answers and the evaluation are short."""
    few = some(validation_questions(), 1)
    stream = functools.partial(corpus.ShardStream, ahead=SHUFFLED_SHARDS)
    threads = torch.get_num_threads()
    torch.set_num_threads(
        1
    )  # the models are tiny, and a second thread waits for the first by spinning
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "ShardStream", stream)
        patch.setattr(distill, "ShardStream", stream)
        patch.setattr(distill, "AGREEMENT_BATCHES", 2)
        patch.setattr(corpus, "SHARD_DIALOGUES", 20)
        patch.setattr(corpus, "CONTEXT_LENGTH", 128)
        patch.setattr(train, "LOG_EVERY", 1)
        patch.setattr(evaluate, "MAX_NEW_TOKENS", 3)
        patch.setattr(retrain, "evaluate", asked_little)
        patch.setattr(retrain, "judge_unseen", lambda tutor, _=(): judge_unseen(tutor, few))
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def stepped(tiny: None) -> Iterator[None]:
    """No clock ends a training."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train.Trainer, "fit", few_steps)
        yield


def all_stages(out: Path) -> str:
    """What was printed."""
    list(dialogues(0, 20))  # the processes that write texts are forks, and need not read all again
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        retrain.main(["--out", str(out), "--pack", *TINY], Here)
    return printed.getvalue()


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, stepped: None) -> tuple[Path, str]:
    """The folder after all stages, and what was printed."""
    out = tmp_path_factory.mktemp("retrained")
    return out, all_stages(out)


@pytest.mark.nightly
def test_all_stages_leave_what_belongs_into_the_package(trained: tuple[Path, str]) -> None:
    expect_a_package(*trained)


@pytest.mark.nightly
def test_they_do_so_when_the_clock_ends_them(
    tmp_path: Path, tiny: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(train.Trainer, "fit", FIT)
    expect_a_package(tmp_path, all_stages(tmp_path))


def expect_a_package(out: Path, printed: str) -> None:
    result = out / "tutor"
    assert {path.name for path in result.iterdir()} == {
        "weights",
        "draft",
        "mtp",
        "evaluation.json",
    }
    for folder in ("weights", "draft", "mtp"):
        shipped = {path.name for path in (TUTOR_DIR / folder).iterdir()}
        assert {path.name for path in (result / folder).iterdir() if path.is_file()} == shipped
        before, after = (load_file(f / folder / WEIGHTS) for f in (TUTOR_DIR, result))
        assert {n: (w.shape, w.dtype) for n, w in before.items()} == {
            n: (w.shape, w.dtype) for n, w in after.items()
        }
    with tarfile.open(out / "tutor.tar.xz") as archive:
        assert f"tutor/weights/{WEIGHTS}" in archive.getnames()
    for name in ("before", *NAMES):
        assert f"{name}: " in printed
    # What was missed is in files alone.
    assert not any(q.turns[-1] in printed for q in validation_questions())
    judged = json.loads((out / "validation.json").read_text(encoding="utf-8"))
    assert set(judged) == {"before", *NAMES}
    command = (result / "weights" / "README.md").read_text(encoding="utf-8")
    assert "--init yaie/models/tutor/weights" in command
    assert "--dropout 0.06 --first-word 3" in command


@pytest.mark.nightly
def test_a_second_call_does_not_train_again(trained: tuple[Path, str]) -> None:
    out, _ = trained
    started: list[str] = []

    class Noted(Here):
        def __init__(self, module: str, argv: list[str], gpu: str = "") -> None:
            started.append(module)
            super().__init__(module, argv, gpu)

    retrain.main(["--out", str(out), "--no-evaluation", *TINY], Noted)
    assert started == ["judge", "distill", "distill"]


@pytest.mark.nightly
def test_without_time_nothing_is_distilled(trained: tuple[Path, str]) -> None:
    out, _ = trained
    args = retrain.parse_args(["--out", str(out), "--within", "30", *TINY])
    assert retrain.distil(args, out, Clock(30), Here) == {}


@pytest.mark.nightly
def test_candidates_lie_between_the_weights_before_and_after(trained: tuple[Path, str]) -> None:
    out, _ = trained
    layer = "model.layers.0.mlp.down_proj.weight"
    before = load_file(TUTOR_PATH / WEIGHTS)[layer].float()
    ends = [load_file(out / f"train-{seed}" / WEIGHTS)[layer].float() for seed in (29, 30)]
    assert len({weights.sum().item() for weights in (before, *ends)}) == 3
    for name, end, share in (
        ("soup", (ends[0] + ends[1]) / 2, 1.0),
        ("soup-0.75", (ends[0] + ends[1]) / 2, 0.75),
        ("train-30-alone", ends[1], 1.0),
    ):
        made = load_file(out / "candidates" / name / WEIGHTS)[layer]
        assert torch.equal(made, torch.lerp(before, end, share).bfloat16())
        log = json.loads((out / "candidates" / name / LOG).read_text(encoding="utf-8"))
        assert log["share"] == share
        assert [stage["seed"] for stage in log["stages"]] == ([29, 30] if "soup" in name else [30])


def test_of_one_training_the_last_weights_are_candidates_too(tmp_path: Path) -> None:
    run, before = tmp_path / "train-1", tmp_path / "before"
    for folder, value in ((before, 0.0), (run, 1.0), (run / "last", 3.0)):
        folder.mkdir()
        save_file({"w": torch.tensor([value])}, folder / WEIGHTS)
        (folder / LOG).write_text('{"mean": true}')
    made = {one.name: write_candidate(one, before, tmp_path / "c") for one in candidates((run,))}
    values = {name: load_file(folder / WEIGHTS)["w"].item() for name, folder in made.items()}
    assert values == {"mean": 1, "mean-0.75": 0.75, "mean-0.5": 0.5, "last": 3, "last-0.5": 1.5}
    logs = {name: json.loads((folder / LOG).read_text()) for name, folder in made.items()}
    assert [logs[name]["stages"][0]["mean"] for name in ("mean", "last")] == [True, False]
    assert not any(log["side_by_side"] for log in logs.values())


def judged(right: float, refused: float = 0.95, whys: float = 0.8) -> dict[str, float]:
    return {"right": right, "unknown_refused": refused, "unusual_whys": whys}


def test_the_first_of_equals_is_chosen_and_otherwise_the_best() -> None:
    assert best_of({"before": judged(0.9), "a": judged(0.5), "b": judged(0.5)}) == "a"
    assert best_of({"before": judged(0.9), "a": judged(0.5), "b": judged(0.6)}) == "b"
    with pytest.raises(ValueError, match="No candidate"):
        best_of({"before": judged(0.9)})


def test_what_forgot_to_refuse_or_to_give_reasons_is_not_chosen() -> None:
    before = {"before": judged(0.5, whys=0.8)}
    forgetful = {"a": judged(0.9, refused=0.87), "b": judged(0.9, whys=0.76)}
    assert best_of(before | forgetful | {"c": judged(0.6, 0.9, 0.767)}) == "c"
    assert best_of(before | forgetful) == "b"  # the nearer one


def test_each_stage_has_a_gpu_as_long_as_there_are_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[str, str, str]] = []

    class Failing:
        def __init__(self, module: str, argv: list[str], gpu: str) -> None:
            places = [argv[argv.index(f"--{name}") + 1] for name in ("seed", "processes")]
            started.append((gpu, *places))

        def wait(self, timeout: float) -> bool:
            return False

    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    argv = ["--out", str(tmp_path), "--processes", "9", "--seeds", "1", "2", "3"]
    with pytest.raises(SystemExit, match="training failed"):
        retrain.main(argv, Failing)
    assert started == [("5", "1", "3"), ("7", "2", "3"), ("5", "3", "3")]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert gpus() == ("0", "1")


def test_a_process_that_takes_too_long_is_ended() -> None:
    job = Process("train", ["--help"])
    assert not job.wait(0)  # importing alone takes longer
    assert job._process.returncode == -signal.SIGKILL


def test_a_process_is_a_success_unless_it_fails() -> None:
    assert Process("templates", []).wait(60)
    assert not Process("no_such_module", []).wait(60)
