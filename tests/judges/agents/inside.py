"""Runs one agent against `yaie serve` where no network is but this machine's own loopback.

    unshare -rn .venv/bin/python -m tests.judges.agents.inside codex OUT.json

The agent has an empty home, an empty environment and a folder with three files. OUT.json gets what
passed between it and the server, and what the agent printed.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import uvicorn

from tests.cli.test_serve import address_in, server
from tests.judges.agents.between import Between
from tests.judges.agents.install import home as installed
from tests.judges.agents.programs import AGENTS, CONTEXT, MODEL
from yaie.models.tutor import TUTOR_PATH

TURNS = 2
SECONDS = 700


def roomy_tutor(folder: Path) -> Path:
    """The tutor with more positions than it was trained on: what it says behind 2,048 is nonsense, which
    costs an agent nothing here."""
    shutil.copytree(TUTOR_PATH, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps(config | {"max_position_embeddings": 131_072}), "utf-8")
    return folder


def proxied(between: Between) -> tuple[uvicorn.Server, str]:
    """The proxy, running on a thread, and its address."""
    config = uvicorn.Config(between.app(), port=0, log_level="warning")
    proxy = uvicorn.Server(config)
    threading.Thread(target=proxy.run, daemon=True).start()
    while not proxy.started:
        threading.Event().wait(0.05)
    port = proxy.servers[0].sockets[0].getsockname()[1]
    return proxy, f"http://127.0.0.1:{port}"


def run(
    command: Sequence[str], folder: Path, environment: dict[str, str]
) -> tuple[int | None, str]:
    """The exit status, None if it took too long, and what was printed."""
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0]
        return process.returncode, said


def main(name: str, out: Path) -> None:
    agent = AGENTS[name]
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory() as base:
        work, home = Path(base) / "work", Path(base) / "home"
        for folder in (work, home):
            folder.mkdir()
        for number in range(3):
            (work / f"file{number}.txt").write_text(f"{number}\n", "utf-8")
        model = roomy_tutor(Path(base) / MODEL)
        blocks = f"--num-blocks={CONTEXT // 16 * 2}"
        options = (
            f"--served-model-name={MODEL}",
            f"--max-model-len={CONTEXT}",
            blocks,
            "--mine=none",
        )
        with server(str(model), *options) as (process, lines):
            between = Between(address_in(process, lines), agent.calls, TURNS)
            _, url = proxied(between)
            bin_ = installed() / "node_modules" / ".bin"
            environment = {
                "HOME": str(home), "PATH": f"{bin_}:{os.environ['PATH']}", "TERM": "dumb",
                **agent.settle(home, url),
            }  # fmt: skip
            command = [str(bin_ / agent.command[0]), *agent.command[1:]]
            status, said = run(command, work, environment)
            told = {"status": status, "said": said, "passed": between.told()}
            out.write_text(json.dumps(told, indent=1), "utf-8")
            with suppress(ProcessLookupError):
                process.terminate()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
