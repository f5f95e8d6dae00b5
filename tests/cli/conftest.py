"""The command line in this process, on a tiny random model or on a fake engine."""

import importlib
import io
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.models.tiny import tiny_model
from tests.server.fake_engine import FakeEngine
from yaie.cli.main import main


@dataclass
class Ran:
    code: int
    out: str
    err: str


Yaie = Callable[..., Ran]


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("YAIE_CONFIG", "YAIE_MODEL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def yaie(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Yaie:
    """Run `yaie ARGS` with this text piped to stdin."""

    def run(*args: str, stdin: str = "") -> Ran:
        monkeypatch.setattr("sys.argv", ["yaie", *args])
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        capsys.readouterr()
        before = signal.getsignal(signal.SIGINT)
        try:
            with pytest.raises(SystemExit) as ended:
                main()
        finally:  # a command's own way of ending is not the tests' way
            signal.signal(signal.SIGINT, before)
        said = capsys.readouterr()
        return Ran(int(ended.value.code or 0), said.out, said.err)

    return run


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tiny_model("llama", tmp_path_factory.mktemp("cli") / "tiny-llama"))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """Commands get this engine, with the configuration they asked for, instead of a real one."""
    engine = FakeEngine()

    def make(config: Any, **_: Any) -> FakeEngine:
        engine.config = config
        return engine

    # A module that is first imported while the name is replaced would keep the replacement.
    for bench in ("ladder", "latency", "memory", "overhead", "prefix", "throughput.contestants"):
        importlib.import_module(f"yaie.bench.{bench}")
    monkeypatch.setattr("yaie.engine.llm_engine.LLMEngine", make)
    return engine
