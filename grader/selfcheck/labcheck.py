"""The figures of one lab's self-check."""

from dataclasses import dataclass, field

from grader.selfcheck.mutant import Mutant
from grader.selfcheck.plan import SEEDS
from grader.selfcheck.proof import Proof
from yaie.curriculum.manifest import Lab


@dataclass(slots=True)
class LabCheck:
    """num_seeds: under how many it was graded. is_recorded: the figures of its mutants are those of an
    earlier check. walked: tasks done one after the other
    by machine. layout: mutants of layout. problems: what does not hold, a line each; none is the aim.
    """

    lab: Lab
    num_seeds: int = SEEDS
    is_recorded: bool = False
    num_tests: int = 0
    slowest_test: float = 0.0
    seeds: int = 0
    walked: int = 0
    wrong: int = 0
    num_wrong: int = 0
    right: int = 0
    num_right: int = 0
    killed: int = 0
    num_mutants: int = 0
    layout_killed: int = 0
    num_layout: int = 0
    survivors: list[tuple[Mutant, str]] = field(default_factory=list)
    seconds: float = 0.0
    grade_seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    def take(self, proof: Proof) -> None:
        """Figures of an earlier check."""
        self.killed, self.num_mutants = proof.killed, proof.mutants
        self.layout_killed, self.num_layout = proof.layout_killed, proof.layout
        self.is_recorded = True
