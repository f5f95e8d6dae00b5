"""Gives Ray an environment of its own: what the extra `cluster` asks for, beside what is installed here.

    .venv/bin/python -m tests.cluster.install
    python3 -m tests.cluster.install .venv     # the same, before .venv has been made

It goes to `.judges/cluster`, beside those of the clients, with the versions of `constraints.txt`. It
sees what the environment has that is named, so PyTorch need not be installed twice.
"""

import re
import subprocess
import sys
from pathlib import Path

from tests.judges.clients.install import ROOT, home, uv

FOLDER = "cluster"
MORE = ("kubernetes-validate==1.37.0",)
"""Knows Kubernetes' own schemas, for the pods of our manifest."""
# jsonschema takes it if a tool for developers has brought it along: two seconds in each process of Ray.
SLOW = "rfc3987_syntax"


def python_with_ray() -> Path:
    """The interpreter of that environment, which need not exist."""
    return home() / FOLDER / "bin" / "python"


def packages_of(environment: Path) -> Path:
    """Where an environment of this interpreter's version has its packages."""
    version = "python{}.{}".format(*sys.version_info)
    return environment / "lib" / version / "site-packages"


def extra() -> list[str]:
    """What `cluster` asks for. Not by tomllib: the system's Python 3.10, which CI starts this with, has
    none."""
    found = re.search(r"^cluster = \[(.+)\]$", (ROOT / "pyproject.toml").read_text("utf-8"), re.M)
    assert found is not None
    return re.findall(r'"([^"]+)"', found[1])


def install(beside: Path | None = None) -> None:
    """Make the environment, unless it has been made from the same versions.

    beside: the environment whose packages it sees; this interpreter's own if not given. Raises
    CalledProcessError if the installation fails, which says why on stderr.
    """
    folder, constraints = home() / FOLDER, ROOT / "constraints.txt"
    wanted = [*extra(), *MORE]
    made_from = folder / "made_from.txt"
    told = "\n".join([sys.version, *wanted, constraints.read_text("utf-8")])
    if not made_from.exists() or made_from.read_text("utf-8") != told:
        program = str(uv())
        make = [program, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)]
        fill = [program, "pip", "install", "--quiet", "--python", str(python_with_ray())]
        for command in (make, [*fill, "-c", str(constraints), *wanted]):
            subprocess.run(command, check=True)
        made_from.write_text(told, "utf-8")
    others = str(packages_of((beside or Path(sys.prefix)).absolute()))
    (packages_of(folder) / "beside.pth").write_text(
        f"import site, sys; sys.modules.setdefault({SLOW!r}); site.addsitedir({others!r})\n",
        "utf-8",
    )


if __name__ == "__main__":
    print(f"{FOLDER}: {python_with_ray()}", flush=True)
    install(*map(Path, sys.argv[1:2]))
