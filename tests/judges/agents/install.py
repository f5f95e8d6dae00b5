"""Installs the coding agents from the npm registry: python -m tests.judges.agents.install

They go to `.judges/agents`, by the versions in `package.json` beside this file. Their own scripts run,
since each brings a program for this platform.
"""

import os
import shutil
import subprocess
from pathlib import Path

from tests.judges.clients.install import home as homes

PINS = Path(__file__).parent / "package.json"


def home() -> Path:
    """Where they are."""
    return homes() / "agents"


def install() -> None:
    """Unless it has been done by the same list. Raises CalledProcessError if npm fails."""
    folder = home()
    done = folder / "done.json"
    if done.exists() and done.read_bytes() == PINS.read_bytes():
        return
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(PINS, folder / "package.json")
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    environment = {**os.environ, "CI": "true"}
    subprocess.run(command, cwd=folder, env=environment, check=True)
    shutil.copy(PINS, done)


if __name__ == "__main__":
    install()
