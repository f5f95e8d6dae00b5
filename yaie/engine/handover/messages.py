"""What two servers tell each other. `MESSAGES` makes bytes of it and reads them: see `core.codec`."""

from dataclasses import dataclass

from yaie.core.step import Ints
from yaie.system.codec import Codec


@dataclass(frozen=True, slots=True)
class Hello:
    """The decode side calls. format: see `layout.FORMAT`. layout: as JSON. number: drawn for this
    greeting. has_secret: whether it knows one."""

    format: int
    layout: str
    number: str
    has_secret: bool


@dataclass(frozen=True, slots=True)
class Reply:
    """The prefill side answers. refused: why they do not fit, or "". number: its own. proof: that it
    knows the secret, "" without one."""

    refused: str
    number: str
    proof: str


@dataclass(frozen=True, slots=True)
class Proof:
    """That the decode side knows the secret."""

    proof: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of the greeting. refused: why the proof is none, or ""."""

    refused: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """To the prefill side: compute these tokens, and hand over the blocks from `first` on."""

    number: int
    tokens: Ints
    first: int


@dataclass(frozen=True, slots=True)
class Drop:
    """To the prefill side: nobody waits for this prompt any more."""

    number: int


@dataclass(frozen=True, slots=True)
class Blocks:
    """To the decode side: of this prompt, as the data of the message."""

    number: int


@dataclass(frozen=True, slots=True)
class Failed:
    """To the decode side: there are no blocks of this prompt."""

    number: int
    why: str


Message = Hello | Reply | Proof | Verdict | Prompt | Drop | Blocks | Failed
MESSAGES = Codec(Hello, Reply, Proof, Verdict, Prompt, Drop, Blocks, Failed)
