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
from safetensors.torch import load_file

from yaie.tutor import TUTOR_DIR, TUTOR_PATH, corpus, distill, evaluate, retrain, train
from yaie.tutor.average import LOG, WEIGHTS
from yaie.tutor.batches import SHUFFLED_SHARDS, Batch
from yaie.tutor.dialogues import dialogues
from yaie.tutor.unseen import judge_unseen, validation_questions

MODULES = {"train": train, "distill": distill}
TINY = "--seconds 6 --distil 6 --processes 1 --questions 1".split()
TINY += ["--how=--batch 1 --eager", "--how-distil=--batch 1 --eager"]
STEPS = 4
"""The fewest of which the mean is not the last weights, and all that `--keep` writes is written."""
FIT = train.Trainer.fit


class Here:
    """A job that this process does at once, so that what a test patches holds for it, too."""

    def __init__(self, module: str, argv: list[str]) -> None:
        MODULES[module].main(argv)

    def wait(self, timeout: float) -> bool:
        return timeout > 0


def asked_little(tutor: evaluate.Tutor) -> dict[str, Any]:
    """The recorded figures, for the card, with those of a few questions that are really asked."""
    recorded = json.loads((TUTOR_DIR / "evaluation.json").read_text(encoding="utf-8"))
    figures = judge_unseen(tutor, retrain.some(validation_questions(), 1))
    return recorded | {"unseen": recorded["unseen"] | {"right": figures["right"]}}


def few_steps(trainer: train.Trainer, data: Iterator[Batch], deadline: float | None = None) -> int:
    """Instead of training until the deadline."""
    assert deadline is not None
    trainer.args.steps = STEPS
    return FIT(trainer, data)


@pytest.fixture(scope="module")
def tiny() -> Iterator[None]:
    """Texts, answers and the evaluation are short."""
    few = retrain.some(validation_questions(), 1)
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
    for name in ("before", *(one.name for one in retrain.CANDIDATES)):
        assert f"{name}: " in printed
    # What was missed is in files alone.
    assert not any(q.turns[-1] in printed for q in validation_questions())
    judged = json.loads((out / "validation.json").read_text(encoding="utf-8"))
    assert set(judged) == {"before", *(one.name for one in retrain.CANDIDATES)}
    command = (result / "weights" / "README.md").read_text(encoding="utf-8")
    assert "--init yaie/tutor/weights" in command
    assert "--dropout 0.06 --first-word 3" in command


@pytest.mark.nightly
def test_a_second_call_does_not_train_again(trained: tuple[Path, str]) -> None:
    out, _ = trained
    started: list[str] = []

    class Noted(Here):
        def __init__(self, module: str, argv: list[str]) -> None:
            started.append(module)
            super().__init__(module, argv)

    retrain.main(["--out", str(out), "--no-evaluation", *TINY], Noted)
    assert started == ["distill", "distill"]


@pytest.mark.nightly
def test_without_time_nothing_is_distilled(trained: tuple[Path, str]) -> None:
    out, _ = trained
    args = retrain.parse_args(["--out", str(out), "--within", "30", *TINY])
    assert retrain.distil(args, out, retrain.Clock(30), Here) == {}


@pytest.mark.nightly
def test_candidates_lie_between_the_weights_before_and_after(trained: tuple[Path, str]) -> None:
    out, _ = trained
    before, after = load_file(TUTOR_PATH / WEIGHTS), load_file(out / "train" / WEIGHTS)
    last = load_file(out / "train" / "last" / WEIGHTS)
    name = "model.layers.0.mlp.down_proj.weight"
    assert len({weights[name].sum().item() for weights in (before, after, last)}) == 3
    for one in retrain.CANDIDATES:
        made = load_file(out / "candidates" / one.name / WEIGHTS)[name]
        end = (after if one.is_mean else last)[name]
        wanted = torch.lerp(before[name].float(), end.float(), one.share).bfloat16()
        assert torch.equal(made, wanted)
        log = json.loads((out / "candidates" / one.name / LOG).read_text(encoding="utf-8"))
        assert log["share"] == one.share
        assert [stage["mean"] for stage in log["stages"]] == [one.is_mean]


def test_the_first_of_equals_is_chosen_and_otherwise_the_best(
    trained: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _ = trained
    args = retrain.parse_args(["--out", str(out), *TINY])
    clock = retrain.Clock(100)
    figures = {"right": 0.5, **dict.fromkeys(retrain.KINDS, 0.5)}
    monkeypatch.setattr(retrain, "judge_unseen", lambda tutor, _: figures)
    assert retrain.choose(args, out / "train", clock).name == "mean"
    shares = iter((0.9, 0.1, 0.3, 0.4, 0.2, 0.1))
    monkeypatch.setattr(retrain, "judge_unseen", lambda tutor, _: figures | {"right": next(shares)})
    assert retrain.choose(args, out / "train", clock).name == "mean-0.5"


def test_a_process_that_takes_too_long_is_ended() -> None:
    job = retrain.Process("train", ["--help"])
    assert not job.wait(0)  # importing alone takes longer
    assert job._process.returncode == -signal.SIGKILL


def test_a_process_is_a_success_unless_it_fails() -> None:
    assert retrain.Process("templates", []).wait(60)
    assert not retrain.Process("no_such_module", []).wait(60)
