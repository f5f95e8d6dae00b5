"""What is known of a learner's attacks, kept in `.yaie/breaks/LAB.json`: outcomes by version and attack,
for only what has changed is run again; and the mistakes that the learner asked to see."""

import json
import platform
from dataclasses import dataclass, field
from pathlib import Path

from grader.breaking.outcome import Outcome
from yaie.core.errors import ConfigError
from yaie.curriculum.manifest import Lab
from yaie.system.files import cannot_write, write_whole

FOLDER = Path(".yaie/breaks")


@dataclass(slots=True)
class Memo:
    """outcomes: key of a version -> key of an attack -> what came of it. shown: names of mistakes."""

    path: Path
    outcomes: dict[str, dict[str, Outcome]] = field(default_factory=dict)
    shown: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, lab: Lab, root: Path) -> "Memo":
        """A file that is missing, garbled, or of another Python is empty; what was shown stays."""
        memo = cls(root / FOLDER / f"{lab.key}.json")
        try:
            table = json.loads(memo.path.read_text("utf-8"))
            memo.shown = [str(name) for name in table["shown"]]
            if table["python"] == platform.python_version():
                memo.outcomes = {str(key): dict(value) for key, value in table["outcomes"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        return memo

    def get(self, version: str, attack: str) -> Outcome | None:
        return self.outcomes.get(version, {}).get(attack)

    def put(self, version: str, attack: str, outcome: Outcome) -> None:
        self.outcomes.setdefault(version, {})[attack] = outcome

    def save(self, attacks: set[str]) -> None:
        """Keep what is known of these attacks, and drop the rest. Raises ConfigError."""
        kept = {
            version: {key: outcome for key, outcome in known.items() if key in attacks}
            for version, known in self.outcomes.items()
        }
        table = {
            "python": platform.python_version(),
            "shown": self.shown,
            "outcomes": {version: known for version, known in sorted(kept.items()) if known},
        }
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(self.path, json.dumps(table) + "\n")
        except OSError as error:
            raise ConfigError(cannot_write(self.path, error)) from None
