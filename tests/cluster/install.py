"""Gives Ray an environment of its own: this one, and what the extra `cluster` adds to it.

    .venv/bin/python -m tests.cluster.install

It goes to `.judges/cluster`, beside those of the clients, with the versions of `constraints.txt`. It
sees what is installed here, so PyTorch need not be installed twice.
"""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from tests.judges.clients.install import ROOT, home
from yaie.core.compat import tomllib

FOLDER = "cluster"


def python_with_ray() -> Path:
    """The interpreter of that environment, which need not exist."""
    return home() / FOLDER / "bin" / "python"


def install() -> None:
    """Make the environment, unless it has been made from the same versions.

    Raises CalledProcessError if pip fails, which says why on stderr.
    """
    folder, constraints = home() / FOLDER, ROOT / "constraints.txt"
    made_from = folder / "constraints.txt"
    if made_from.exists() and made_from.read_bytes() == constraints.read_bytes():
        return
    venv.create(folder, clear=True, with_pip=True)
    here, there = (sysconfig.get_path("purelib", vars=at) for at in ({}, {"base": str(folder)}))
    Path(there, "beside.pth").write_text(f"import site; site.addsitedir({here!r})\n", "utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    command = [str(python_with_ray()), "-m", "pip", "install", "--quiet", "--no-compile",
               "-c", str(constraints), *project["optional-dependencies"]["cluster"]]  # fmt: skip
    subprocess.run(command, check=True)
    made_from.write_bytes(constraints.read_bytes())


if __name__ == "__main__":
    print(f"{FOLDER}: {python_with_ray()}", flush=True)
    install()
    sys.exit()
