"""Which version a lab's suite has: a pass of an older, milder one is to be graded again.

    python -m grader.suite_version                    which suites have changed, and must be judged
    python -m grader.suite_version LAB --stricter     it refuses what passed before: the next version
    python -m grader.suite_version LAB --same         it does not, as far as is known

The manifest holds each lab's version, `grader/suites.toml` what its suite looked like when it was
judged last. A test fails for a suite that has changed since.
"""

import argparse
import re
import sys
from pathlib import Path

from yaie.core.compat import tomllib
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import MANIFEST, ROOT, load_curriculum
from yaie.curriculum.progress import digest_of
from yaie.system.files import write_whole

JUDGED = Path("grader/suites.toml")


def suite_digest(lab: str, root: Path = ROOT) -> str:
    """Of the files of a lab's own suite."""
    folder = root / "grader" / "suites" / lab
    files = sorted(path for path in folder.rglob("*") if path.suffix in (".py", ".cu", ".json"))
    return digest_of(
        (path.relative_to(folder).as_posix().encode(), path.read_bytes()) for path in files
    )


def judged(root: Path = ROOT) -> dict[str, str]:
    """Lab -> the digest of its suite when it was judged last."""
    table: dict[str, str] = tomllib.loads((root / JUDGED).read_text("utf-8"))
    return table


def unjudged(root: Path = ROOT) -> list[str]:
    """Labs whose suites have changed since."""
    known = judged(root)
    return [lab for lab in load_curriculum(root).keys if known.get(lab) != suite_digest(lab, root)]


def judge(lab: str, root: Path = ROOT, *, is_stricter: bool) -> int:
    """Note that a lab's suite was judged as it is; returns its version."""
    version = load_curriculum(root)[lab].suite + is_stricter
    if is_stricter:
        path = root / MANIFEST
        write_whole(path, _with_version(path.read_text("utf-8"), lab, version))
    table = judged(root) | {lab: suite_digest(lab, root)}
    lines = [f'{key} = "{table[key]}"' for key in load_curriculum(root).keys if key in table]
    write_whole(root / JUDGED, "\n".join([*HEADER, *lines, ""]))
    return version


HEADER = (
    "# What each lab's suite looked like when its version was judged last; written by",
    "# python -m grader.suite_version.",
    "",
)


def _with_version(manifest: str, lab: str, version: int) -> str:
    """The manifest with another version of a lab's suite."""
    entry = re.compile(rf'(key = "{lab}"\n(?:(?!\[\[lab\]\]).*\n)*?)(?:suite = \d+\n)?(tasks = )')
    changed, count = entry.subn(rf"\g<1>suite = {version}\n\g<2>", manifest)
    if count != 1:
        raise ConfigError(f"{MANIFEST} has no entry for {lab} that ends with its tasks")
    return changed


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    lines = (__doc__ or "").splitlines()
    parser = argparse.ArgumentParser(prog="python -m grader.suite_version", description=lines[0])
    parser.add_argument("lab", nargs="?", help="as radix_tree")
    verdict = parser.add_mutually_exclusive_group()
    verdict.add_argument("--stricter", action="store_true", help="it refuses what passed before")
    verdict.add_argument("--same", action="store_true", help="it does not, as far as is known")
    given = parser.parse_args(arguments)
    try:
        if given.lab is None:
            for lab in unjudged(root):
                print(f"{lab}: its suite has changed; say --stricter or --same")
            return 1 if unjudged(root) else 0
        if not given.stricter and not given.same:
            raise ConfigError("say --stricter or --same")
        version = judge(given.lab, root, is_stricter=given.stricter)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{given.lab}: version {version} of its suite")
    return 0


if __name__ == "__main__":
    sys.exit(main())
