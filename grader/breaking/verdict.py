"""Which attacks count, and which version each tells from the right one. Nothing is run here."""

from collections.abc import Mapping
from dataclasses import dataclass

from grader.breaking.attacks import Attack
from grader.breaking.draw import Version
from grader.breaking.outcome import Outcome, apart, same

RANDOM = (
    "It is not deterministic: two runs on the reference differ. Seed what it draws "
    "(random.Random(0), torch.manual_seed(0)), and let it depend on no other attack."
)


@dataclass(frozen=True, slots=True)
class Judged:
    """An attack. refused: why it does not count, in sentences, "" if it does. right: its outcome on the
    reference."""

    attack: Attack
    refused: str
    right: Outcome | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A version. told_by: the attack that tells it, "" if none does. gave: its outcome then. is_shown:
    the learner asked what it is."""

    version: Version
    told_by: str = ""
    gave: Outcome | None = None
    is_shown: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    attacks: tuple[Judged, ...]
    rows: tuple[Row, ...]

    @property
    def score(self) -> int:
        """Versions that were caught before they were shown."""
        return sum(bool(row.told_by) and not row.is_shown for row in self.rows)


def judge(
    attack: Attack,
    runs: tuple[Outcome | None, Outcome | None],
    mine: Outcome | None,
    designs: Mapping[str, Outcome | None],
    problem: str = "",
) -> Judged:
    """Whether an attack counts. runs: two on the reference. mine: on the learner's part. designs: on
    other designs that are right, by name. problem: why its value cannot be compared."""
    one, two = runs
    if attack.refused or problem:
        return Judged(attack, attack.refused or problem)
    if one is None or two is None:
        return Judged(attack, "It was not run.")
    if "cannot" in one:
        return Judged(attack, one["cannot"], one)
    if "died" in one or "died" in two:
        end = one if "died" in one else two
        return Judged(attack, f"On the reference it does not come to its end. {end['died']}", one)
    if not same(one, two):
        first, second, place = apart(one, two)
        return Judged(attack, f"{RANDOM} Once: {first}{place}. Then: {second}.", one)
    for name, gave in designs.items():
        if gave is not None and not same(one, gave):
            wanted, found, place = apart(one, gave)
            return Judged(
                attack,
                "It asks for more than the contract promises: another right design "
                f"({name.replace('_', ' ')}) gives {found}{place}, the reference {wanted}.",
                one,
            )
    if mine is not None and not same(one, mine):
        wanted, found, place = apart(one, mine)
        return Judged(
            attack,
            f"Your own part gives {found}{place}, the reference {wanted}. Either the attack asks for "
            "more than the contract promises, or your part has a defect that the grader missed: read "
            "the contract's sentence about it. If it is a defect, send it: CONTRIBUTING.md says how.",
            one,
        )
    return Judged(attack, "", one)
