"""What became of each mutant, in a file that grows as they end; a broken run goes on from it."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.mutants.population import EngineMutant

KILLED, TIMEOUT, SURVIVED = "killed", "timeout", "survived"


@dataclass(slots=True)
class Result:
    """status: killed | timeout | survived. A timeout is a test that takes far longer than without the
    mutant, and counts as noticed. test: which noticed it, and why. ran: how many tests passed before, of
    so many that reach the line. is_checked: that test passes without the mutant. argued: why a survivor
    may live."""

    file: str
    line: int
    function: str
    text: str
    change: str
    status: str
    test: str = ""
    why: str = ""
    ran: int = 0
    of: int = 0
    seconds: float = 0.0
    is_checked: bool = False
    argued: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """As `EngineMutant.key`."""
        return self.file, self.function, self.text, self.change


def result_of(mutant: EngineMutant, status: str, **told: Any) -> Result:
    site = mutant.site
    return Result(mutant.file, mutant.line, site.function, site.line, site.change, status, **told)


class Results:
    """The results of one choice of mutants on one state of the sources."""

    def __init__(self, path: Path, head: dict[str, Any], *, anew: bool = False) -> None:
        """head: what must be the same for an earlier run to be gone on with. anew: forget that."""
        self.path = path
        self._head = head
        self.by_key: dict[tuple[str, str, str, str], Result] = {}
        if path.is_file() and not anew:
            table = json.loads(path.read_text("utf-8"))
            if {name: table.get(name) for name in head} == head:
                for entry in table["mutants"]:
                    self.add(Result(**entry), keep=False)

    def add(self, result: Result, *, keep: bool = True) -> None:
        self.by_key[result.key] = result
        if keep:
            self.keep()

    def keep(self) -> None:
        """Write the file, whole or not at all."""
        ordered = sorted(self.by_key.values(), key=lambda one: (one.file, one.line, one.change))
        table = {**self._head, "counts": self.counts(), "mutants": [asdict(one) for one in ordered]}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_name(self.path.name + ".new")
        new.write_text(json.dumps(table, indent=1, ensure_ascii=False) + "\n", "utf-8")
        new.replace(self.path)

    def counts(self) -> dict[str, int]:
        """noticed: killed or timeout. Of the survivors: how many are argued, and how many no test
        reaches."""
        results = self.by_key.values()
        status = Counter(result.status for result in results)
        return {
            "mutants": len(results),
            "noticed": status[KILLED] + status[TIMEOUT],
            KILLED: status[KILLED],
            TIMEOUT: status[TIMEOUT],
            SURVIVED: status[SURVIVED],
            "argued": sum(bool(result.argued) for result in results),
            "not reached": sum(
                result.status == SURVIVED and not result.of and not result.argued
                for result in results
            ),
        }

    @property
    def unargued(self) -> list[Result]:
        """Survivors that a test should kill, or someone argue."""
        alive = (one for one in self.by_key.values() if one.status == SURVIVED and not one.argued)
        return sorted(alive, key=lambda one: (one.file, one.line, one.change))


def sources_digest(root: Path, folders: Sequence[str] = ("yaie", "tests", "solutions")) -> str:
    """Of all that mutants and tests are made of."""
    total = sha256()
    for path in sorted(path for folder in folders for path in (root / folder).rglob("*.py")):
        total.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return total.hexdigest()[:16]


def commit(root: Path) -> str:
    """The commit, with a plus sign if something was changed since; "" outside of git."""

    def git(*arguments: str) -> str:
        told = subprocess.run(
            ["git", *arguments], cwd=root, capture_output=True, text=True, check=False
        )
        return told.stdout.strip()

    changes = git("status", "--porcelain", "--", "yaie", "tests", "solutions")
    return git("rev-parse", "HEAD") + ("+" if changes else "")


def entry(result: Result) -> str:
    """A survivor as survivors.toml wants it, with an empty reason."""
    fields = {
        "file": result.file,
        "function": result.function,
        "line": result.text,
        "change": result.change,
    }
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()]
    return "\n".join(["[[survivor]]", *lines, "reason = ''"])


def where(results: Iterable[Result]) -> str:
    """A line for each: file, line, function, change."""
    return "\n".join(
        f"{one.file}:{one.line} {one.function or 'module'}: {one.change} in {one.text}"
        for one in results
    )
