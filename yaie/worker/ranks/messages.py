"""What goes between control and the ranks in other processes, beside StepInput and StepMasks."""

from dataclasses import dataclass
from typing import Any
from zlib import crc32

from yaie.core.step import Fault, StepResult


@dataclass(frozen=True, slots=True)
class Go:
    """To a rank: the model is there, and can be split as it is to be."""


@dataclass(frozen=True, slots=True)
class Here:
    """A rank has started, and is about to connect to the others."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A rank holds its weights. sizes: `build.Sizes`, what would fit beside them. dtype: of states."""

    sizes: Any
    dtype: Any


@dataclass(frozen=True, slots=True)
class Ready:
    """A rank waits for steps."""


@dataclass(frozen=True, slots=True)
class Collect:
    """To a rank: take over the result of this step, as control does now."""

    step: int


@dataclass(frozen=True, slots=True)
class Done:
    """A rank has done so. drawn: `digest` of its tokens, None where it draws none. result: of the rank
    whose results count, if that is not control's."""

    step: int
    drawn: int | None
    result: StepResult | None = None


@dataclass(frozen=True, slots=True)
class Broken:
    """A rank is at its end. error: what has ended it, if that was an exception of ours as it started;
    fault: what broke a step."""

    error: Exception | None = None
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class End:
    """To a rank on another host: end. why: "" if nothing is wrong."""

    why: str


def digest(result: StepResult) -> int:
    """A number that two ranks share if they drew the same tokens."""
    return crc32(repr(result.token_ids).encode())
