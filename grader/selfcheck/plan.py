"""How much of a self-check is done."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from grader.selfcheck.proof import Proof
from grader.selfcheck.variants import KnownWrong, known_right, known_wrong
from yaie.curriculum.manifest import Lab

SEEDS = 5
SAMPLED_EFFORT = 0.1

Kind = TypeVar("Kind")


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is proven. seeds: under how many the reference is graded. mutate: grade its mutants.
    sample: this many known mistakes and right designs of each lab, 0 for all. proofs: labs that are as
    they were when their mutants were graded: that is not done again. only_layout: of mutants, those of
    layout. path: walk through the lab task by task; a sample leaves that out too."""

    seeds: int = SEEDS
    mutate: bool = True
    sample: int = 0
    proofs: Mapping[str, Proof] = field(default_factory=dict)
    only_layout: bool = False
    path: bool = True

    @property
    def effort_for_right(self) -> float:
        """Share of the generated examples that other right designs are tried with: the reference has
        all of them in a sample too."""
        return SAMPLED_EFFORT if self.sample else 1.0

    @property
    def walks(self) -> bool:
        return self.path and not self.sample

    def grades_mutants_of(self, lab: Lab) -> bool:
        return self.mutate and lab.key not in self.proofs

    def known_wrong(self, lab: Lab) -> list[KnownWrong]:
        """The known mistakes to grade: of a sample, evenly spread over the names."""
        return self._sampled(known_wrong(lab))

    def known_right(self, lab: Lab) -> list[Path]:
        """Other right designs to grade, chosen likewise."""
        return self._sampled(known_right(lab))

    def _sampled(self, every: list[Kind]) -> list[Kind]:
        step = max(1, len(every) // self.sample) if self.sample else 1
        return every[::step][: self.sample or None]


WHOLE = Plan()
