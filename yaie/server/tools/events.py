"""What was read of an answer, as typed pieces: reasoning, text, calls of tools, and how it ended."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class Reasoning:
    """What the model thought, apart from the text."""

    text: str


@dataclass(slots=True)
class Content:
    """Text for the reader."""

    text: str


@dataclass(slots=True)
class Call:
    """A call begins. call_id: by which a tool's answer will refer to it; "" until one is given."""

    index: int
    name: str
    call_id: str = ""


@dataclass(slots=True)
class Arguments:
    """A piece of a call's arguments, which are a JSON object once joined."""

    index: int
    text: str


@dataclass(slots=True)
class End:
    """There is no more. Both reasons as a chat completion has them."""

    finish_reason: str
    stop_reason: str | int | None


Event = Content | Call | Arguments
"""What parsers of calls tell."""
Piece = Reasoning | Event


def merged(pieces: Iterable[Piece]) -> list[Piece]:
    """The pieces of a whole answer: its reasoning if there is any, its content in any case, and each
    call with all its arguments."""
    thoughts, texts, calls = list[str](), list[str](), list[tuple[Call, list[str]]]()
    for piece in pieces:
        match piece:
            case Reasoning(text):
                thoughts.append(text)
            case Content(text):
                texts.append(text)
            case Call():
                calls.append((piece, []))
            case Arguments(index, text):
                calls[index][1].append(text)
    whole: list[Piece] = [Reasoning("".join(thoughts))] if thoughts else []
    whole.append(Content("".join(texts)))
    for call, arguments in calls:
        whole += [call, Arguments(call.index, "".join(arguments))]
    return whole
