"""`python -m grader.upgrade.keep LAB`: keep the stubs of a lab, before its contract changes."""

import argparse
import sys
import zipfile
from pathlib import Path

from grader.stubs import generate
from grader.upgrade.changes import kept_stubs
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import ROOT, Lab, load_curriculum
from yaie.curriculum.progress import SOURCES

MADE = (1980, 1, 1, 0, 0, 0)
"""The date of every file in an archive: the same stubs make the same bytes."""


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m grader.upgrade.keep", description=__doc__)
    parser.add_argument("lab", help="as cuda_graphs")
    try:
        lab = load_curriculum(root)[parser.parse_args(arguments).lab]
        path = keep(lab, root)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"kept {path.relative_to(root).as_posix()}; now let the manifest say {lab.edition + 1}")
    return 0


def keep(lab: Lab, root: Path = ROOT) -> Path:
    """Write the archive of today's edition. Raises ConfigError if there is one."""
    path = kept_stubs(lab.key, lab.edition, root)
    if path.exists():
        raise ConfigError(f"{path.relative_to(root).as_posix()} is there: that edition is history")
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in sorted(stubs_of_today(lab, root).items()):
            entry = zipfile.ZipInfo(name, MADE)
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED, 9)
    return path


def stubs_of_today(lab: Lab, root: Path = ROOT) -> dict[str, str]:
    """Name of a source file in a lab's package -> text."""
    folder = Path("labs", lab.key)
    return {
        path.relative_to(folder).as_posix(): text
        for path, text in generate(root).items()
        if path.is_relative_to(folder) and path.suffix in SOURCES
    }


if __name__ == "__main__":
    sys.exit(main())
