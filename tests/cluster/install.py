"""Gives Ray an environment of its own: this one, and what the extra `cluster` adds to it.

    .venv/bin/python -m tests.cluster.install

It goes to `.judges/cluster`, beside those of the clients, with the versions of `constraints.txt`. It
sees what is installed here, so PyTorch need not be installed twice.
"""

import subprocess
import sysconfig
import venv
from pathlib import Path

from tests.judges.clients.install import ROOT, home
from yaie.core.compat import tomllib

FOLDER = "cluster"
MORE = ("kubernetes-validate==1.37.0",)
"""Knows Kubernetes' own schemas, for the pods of our manifest."""


def python_with_ray() -> Path:
    """The interpreter of that environment, which need not exist."""
    return home() / FOLDER / "bin" / "python"


def install() -> None:
    """Make the environment, unless it has been made from the same versions.

    Raises CalledProcessError if pip fails, which says why on stderr.
    """
    folder, constraints = home() / FOLDER, ROOT / "constraints.txt"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [*project["optional-dependencies"]["cluster"], *MORE]
    made_from = folder / "made_from.txt"
    told = "\n".join([*wanted, constraints.read_text("utf-8")])
    if made_from.exists() and made_from.read_text("utf-8") == told:
        return
    venv.create(folder, clear=True, with_pip=True)
    here, there = (sysconfig.get_path("purelib", vars=at) for at in ({}, {"base": str(folder)}))
    Path(there, "beside.pth").write_text(f"import site; site.addsitedir({here!r})\n", "utf-8")
    pip = [str(python_with_ray()), "-m", "pip", "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, "-c", str(constraints), *wanted], check=True)
    made_from.write_text(told, "utf-8")


if __name__ == "__main__":
    print(f"{FOLDER}: {python_with_ray()}", flush=True)
    install()
