"""What was read of an answer: text, and calls of tools piece by piece."""

from dataclasses import dataclass


@dataclass(slots=True)
class Content:
    """Text for the reader."""

    text: str


@dataclass(slots=True)
class Call:
    """A call begins."""

    index: int
    name: str


@dataclass(slots=True)
class Arguments:
    """A piece of a call's arguments, which are a JSON object once joined."""

    index: int
    text: str


Event = Content | Call | Arguments
