"""Every command says whose parts run, and a learner's part that fails does not end a chat."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from tests.cli.conftest import Yaie
from tests.learner import faults_of, hand_in, hand_in_faulty, record_pass
from tests.server.fake_engine import FakeEngine
from yaie.backends.cpu.build import missing
from yaie.cli import chat
from yaie.cli.console import parts_table, show_backend
from yaie.cli.serve import announce
from yaie.core.config import EngineConfig
from yaie.parts import Part
from yaie.server.settings import ServerSettings

OPTIONS = ["--raw", "--max-tokens", "2", "--temperature", "0"]


def row(text: str, lab: str) -> list[str]:
    """The cells of a part in the table."""
    line = next(line for line in text.splitlines() if line.startswith(lab))
    return line.strip().split(maxsplit=3)


def test_generate_shows_the_table_out_of_the_way_of_its_answers(
    yaie: Yaie, tiny_folder: str, labs: Path
) -> None:
    hand_in(labs, "sampler")
    record_pass(labs, "sampler")
    ran = yaie("generate", "hello", "--model", tiny_folder, *OPTIONS)
    assert row(ran.err, "sampler") == ["sampler", "yours", "labs.sampler", "all tasks passed"]
    assert row(ran.err, "engine")[1] == "reference"
    assert "sampler" not in ran.out


@pytest.mark.nightly
def test_bench_shows_the_table(yaie: Yaie) -> None:
    ran = yaie("bench", "bookkeeping", "--running", "2", "--steps", "2", "--mine", "none")
    assert row(ran.err, "scheduler")[3] == "chosen by --mine none"


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_chat_on_the_reference_needs_one_line(yaie: Yaie, tiny_folder: str, labs: Path) -> None:
    hand_in(labs, "sampler")
    (said,) = yaie("chat", tiny_folder).err.splitlines()
    assert said.startswith("All parts are the reference: 1 not graded yet, 9 not in labs")


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_a_complete_part_that_a_run_does_not_use_is_named(
    yaie: Yaie, tiny_folder: str, labs: Path
) -> None:
    for lab in ("tensor_parallel", "triton_ops"):
        hand_in(labs, lab)
        record_pass(labs, lab)
    first, second = yaie("chat", tiny_folder).err.splitlines()
    assert first.startswith("All parts in this run are the reference: ")
    assert second == (
        "Complete, and not used in this run: triton_ops (with --backend triton), "
        "tensor_parallel (with --tensor-parallel 2)."
    )


def test_chat_shows_the_table_once_a_part_is_yours(
    yaie: Yaie, tiny_folder: str, labs: Path
) -> None:
    hand_in(labs, "sampler")
    ran = yaie("chat", tiny_folder, "--mine", "sampler")
    assert row(ran.err, "sampler")[3] == "forced by --mine"


@pytest.mark.nightly
def test_chat_survives_a_part_that_fails(
    yaie: Yaie, tiny_folder: str, labs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hand_in_faulty(labs, "sampler", "Sampler.sample")
    show, shown = chat._show, []

    def show_and_break(text: str) -> None:
        show(text)
        if not shown:
            faults_of("sampler").append(IndexError("boom"))
        shown.append(text)

    monkeypatch.setattr(chat, "_show", show_and_break)
    lines = "first\nsecond\n/stats\n"
    ran = yaie("chat", tiny_folder, "--mine", "sampler", "--max-tokens", "8", stdin=lines)
    assert ran.code == 0
    assert "Error: your part sampler failed: IndexError: boom (labs/sampler/" in ran.err
    assert "output       8 tokens" in ran.out


def test_a_backend_that_is_slow_here_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    info = FakeEngine().info
    show_backend(info)
    show_backend(replace(info, backend="cuda", backend_note="on the CPU, very slowly"))
    assert capsys.readouterr().err == "Backend cuda: on the CPU, very slowly.\n"


def test_attention_in_cpp_is_said_where_a_table_leaves_lab_5_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    note = "attention and norms in C++"
    info = replace(FakeEngine().info, backend="cpu", backend_note=note)
    show_backend(info)
    assert capsys.readouterr().err == ""
    yours = Part("sampler", "yours", "labs.sampler", "all tasks passed")
    show_backend(replace(info, parts=(*info.parts, yours)))
    assert capsys.readouterr().err == f"Backend cpu: {note}.\n"


def test_a_dtype_that_was_chosen_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    info = replace(FakeEngine().info, dtype_note="bfloat16, as it is stored")
    show_backend(info)
    assert capsys.readouterr().err == "Computed in bfloat16, as it is stored.\n"
    announce(info, ServerSettings(), "http://127.0.0.1:1")
    assert "\ndtype        bfloat16, as it is stored\n" in capsys.readouterr().out


def test_a_text_half_is_said_to_be_one(capsys: pytest.CaptureFixture[str]) -> None:
    info = replace(FakeEngine().info, left_out="images")
    show_backend(info)
    said = "text only: it takes images too, which are left out"
    assert capsys.readouterr().err == f"fake is served as {said}.\n"
    announce(info, ServerSettings(), "http://127.0.0.1:1")
    assert f"\n             {said}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "device", "said"), [(None, "cpu", "512"), (None, "cuda", "2,048"), (64, "cuda", "64")]
)
def test_a_server_says_how_much_a_step_computes(
    given: int | None, device: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = EngineConfig(token_budget=given)
    info = replace(FakeEngine().info, config=config, device=device)
    announce(info, ServerSettings(), "http://127.0.0.1:1")
    assert f"\nsteps        {said} tokens at most (token_budget)\n" in capsys.readouterr().out


def test_a_backend_that_cannot_run_here_is_an_error_before_a_model_is_loaded(
    yaie: Yaie, tiny_folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yaie.cuda.nvcc.find_host_compiler", lambda: None)
    ran = yaie("generate", "hello", "--model", tiny_folder, "--backend", "cuda", "--device", "cpu")
    assert ran.code == 2
    assert "install g++" in ran.err


def test_the_table_has_a_head_and_no_cell_but_the_last_is_broken() -> None:
    console = Console(file=io.StringIO(), width=60)
    console.print(
        parts_table([Part("radix_attention", "yours", "labs.radix_attention", "why " * 20)])
    )
    head, first, second, *_ = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert head.split() == ["part", "whose", "from", "why"]
    assert first.split()[:4] == ["radix_attention", "yours", "labs.radix_attention", "why"]
    assert second.startswith(" " * len("radix_attention  yours  labs.radix_attention"))


@pytest.mark.parametrize(
    ("backend", "note", "line"),
    [
        ("torch", "", None),
        ("torch", "slower here", "torch (slower here)"),
        ("triton", "", "triton"),
        ("cuda", "slow here", "cuda (slow here)"),
    ],
)
def test_a_server_says_which_backend_it_runs_on_unless_it_is_the_plain_one(
    backend: str, note: str, line: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    info = replace(FakeEngine().info, backend=backend, backend_note=note)
    announce(info, ServerSettings(), "http://127.0.0.1:1")
    said = [row for row in capsys.readouterr().out.splitlines() if row.startswith("backend ")]
    assert said == ([f"backend      {line}"] if line else [])
