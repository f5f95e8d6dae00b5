"""What goes between control and the ranks in other processes, beside StepInput and StepMasks.

`MESSAGES` makes bytes of all of them, for a pipe as well as for a network.
"""

from dataclasses import dataclass
from zlib import crc32

import torch

from yaie.core import errors
from yaie.core.compat import Self
from yaie.core.errors import YaieError
from yaie.core.step import Fault, StepInput, StepMasks, StepResult
from yaie.system.codec import Codec
from yaie.worker.build import Sizes


@dataclass(frozen=True, slots=True)
class Go:
    """To a rank: the model is there, and can be split as it is to be."""


@dataclass(frozen=True, slots=True)
class Here:
    """A rank has started, and is about to connect to the others."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A rank holds its weights. sizes: what would fit beside them. dtype: of states, as `dtype_name`."""

    sizes: Sizes
    dtype: str


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
class Failure:
    """An exception as data. kind: the name of its class, of those in `core.errors`, or ""."""

    kind: str
    message: str
    param: str | None = None

    @classmethod
    def of(cls, error: Exception) -> Self:
        """An error of ours, as the nearest class that everybody knows; of others the words."""
        if not isinstance(error, YaieError):
            return cls("", f"{type(error).__name__}: {error}")
        known = next(one for one in type(error).__mro__ if getattr(errors, one.__name__, 0) is one)
        return cls(known.__name__, error.message, error.param)

    def exception(self) -> Exception:
        """The same to raise here."""
        kind = getattr(errors, self.kind, None)
        if isinstance(kind, type) and issubclass(kind, YaieError):
            return kind(self.message, param=self.param)
        return RuntimeError(self.message)


@dataclass(frozen=True, slots=True)
class Broken:
    """A rank is at its end. error: what has ended it, if that was an exception as it started; fault:
    what broke a step."""

    error: Failure | None = None
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class End:
    """To a rank on another host: end. why: "" if nothing is wrong."""

    why: str


MESSAGES = Codec(
    StepInput, StepMasks, Go, Here, Loaded, Sizes, Ready, Collect, Done, Broken, End
)  # fmt: skip


def digest(result: StepResult) -> int:
    """A number that two ranks share if they drew the same tokens."""
    return crc32(repr(result.token_ids).encode())


def dtype_name(dtype: torch.dtype) -> str:
    """As in `Loaded`."""
    return str(dtype).removeprefix("torch.")
