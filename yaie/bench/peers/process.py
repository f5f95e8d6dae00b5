"""Our side of a peer: its job file, its process, and what is said when it fails."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from yaie.bench.throughput.contestants import Run, Runner, check_lengths
from yaie.bench.workload import Job
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError, YaieError

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 10.0
"""Seconds that a peer's processes have to end."""
LINES_SHOWN = 12
ELSEWHERE = ("vllm", "sglang")
"""Peers that may live in another environment."""


@dataclass(slots=True)
class Peer:
    """A contestant in a process of its own. kind: which class of `engines.py`. about: `version`, once it
    has run."""

    name: str
    kind: str
    settings: dict[str, Any]
    runs: Sequence[Sequence[Job]]
    temperature: float = 0.0
    python: str | None = None
    about: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def opened(self) -> Iterator[Runner]:
        """See `Contestant`. Raises YaieError, with the last lines of what it wrote, if it ends early."""
        with tempfile.TemporaryDirectory(prefix="yaie-peer-") as folder:
            job, log = Path(folder) / "job.json", Path(folder) / "log"
            job.write_text(json.dumps({"settings": self.settings, "runs": self._runs()}), "utf-8")
            with log.open("w") as stderr:
                process = self._started(job, stderr)
            try:
                self.about.update(self._answer(process, log))
                yield lambda number, warm=False: self._run(process, log, number, warm)
            except BaseException:
                _end(process, patience=0)
                raise
            _end(process, PATIENCE)

    def _runs(self) -> list[dict[str, Any]]:
        return [
            {
                "prompts": [job.prompt for job in jobs],
                "outputs": [job.num_output for job in jobs],
                "temperature": self.temperature,
            }
            for jobs in self.runs
        ]

    def _started(self, job: Path, stderr: Any) -> "subprocess.Popen[str]":
        """In a session of its own: what it starts ends with it, and Ctrl-C is ours to handle."""
        path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        return subprocess.Popen(
            [interpreter(self.kind, self.python), "-m", "yaie.bench.peers", self.kind, str(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
        )

    def _run(self, process: "subprocess.Popen[str]", log: Path, number: int, warm: bool) -> Run:
        assert process.stdin is not None
        try:
            process.stdin.write(f"{number} WARM\n" if warm else f"{number}\n")
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and the missing answer tells
        answer = self._answer(process, log)
        check_lengths(self.runs[number], answer["lengths"])
        return Run(answer["seconds"], sum(answer["lengths"]))

    def _answer(self, process: "subprocess.Popen[str]", log: Path) -> dict[str, Any]:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            said = log.read_text("utf-8", errors="replace").splitlines()[-LINES_SHOWN:]
            raise YaieError(
                "\n".join([f"the peer {self.name} failed. The last that it wrote:", *said])
            )
        answer: dict[str, Any] = json.loads(line)
        return answer


def _end(process: "subprocess.Popen[str]", patience: float) -> None:
    """End a peer and what it started: its input ends, then it is told to, then it is killed."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.close()
    except BrokenPipeError:
        pass
    for urge, seconds in ((0, patience), (signal.SIGTERM, PATIENCE), (signal.SIGKILL, PATIENCE)):
        _signal(process.pid, urge)
        try:
            process.wait(seconds)
            break
        except subprocess.TimeoutExpired:
            continue
    _signal(process.pid, signal.SIGKILL)  # what outlived it would keep a GPU's memory
    process.stdout.close()


def _signal(group: int, number: int) -> None:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        pass  # all have ended


def settings_for(
    config: EngineConfig, model: str, dtype: str, device: str, max_model_len: int
) -> dict[str, Any]:
    """What a job file says of the engine: ours as configured, on the same model."""
    return {
        "model": model,
        "dtype": dtype,
        "device": device,
        "max_model_len": max_model_len,
        "prefix_caching": config.prefix_caching,
        "seed": config.seed,
        "threads": config.threads,
        "config": asdict(config),
    }


def interpreter(kind: str, python: str | None) -> str:
    """The Python that a peer runs on."""
    return python if python is not None and kind in ELSEWHERE else sys.executable


def check_peers(kinds: Sequence[str], python: str | None) -> None:
    """Raise ConfigError for a peer that cannot be imported, with how to install it."""
    for kind in kinds:
        if kind == "static":
            continue
        runs_on = interpreter(kind, python)
        program = (
            f"import importlib.util, sys; sys.exit(importlib.util.find_spec({kind!r}) is None)"
        )
        try:
            found = subprocess.run([runs_on, "-c", program], capture_output=True).returncode == 0
        except OSError as error:
            raise ConfigError(
                f"--peer-python {runs_on} cannot be run: {error.strerror}", param="peer-python"
            ) from None
        if not found:
            raise ConfigError(
                f"the peer {kind} is not installed for {runs_on}. Install it there with `pip install "
                f"{kind}`; if it wants another torch than ours, into an environment of its own, and "
                "name that one's interpreter with --peer-python.",
                param="peer",
            )
