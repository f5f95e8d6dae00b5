"""What the whole game says beside its events: a sentence that stays while requests only decode.

Numbers and names in braces are read from the recording, so a sentence cannot differ from the drawing.
"""

import re
from itertools import pairwise
from typing import Any

from book.tools.traces._story import listed

State = dict[str, Any]

COUNTS = {"parts", "keys", "used", "unshared"}
"""Of these a sentence stays only while they are what it says."""
QUIET = re.compile(r"[A-D](?:(?:, [A-D])* and [A-D])? decodes?: one token(?: each)?\.")
"""The caption of a step in which nothing else happens."""

PLENTY = {
    3: "Each computes the token that it got in the step before, and gets the next one.",
    5: "Attention reads {parts} = {keys} keys. The first 32 of each are the same, in blocks 0 and 1.",
    6: "The step reads every weight once, 29 MB, for all four.",
    9: "How long an answer will be is not known, so no memory is kept for the rest of it.",
    12: "One after another the four answers would take {alone} steps; together they take {last}.",
    15: "A request gets its next block when its last one is full.",
    19: "Only a request's last block has free slots, so a request wastes at most 15.",
    21: "{used} blocks are in use, the most of all steps. Without sharing it would be {unshared}.",
    24: "Blocks {kept} stay in the tree for C's next question, until their room is needed.",
    26: "Three are left, and a step still reads all weights.",
    28: "Attention reads {parts} = {keys} keys, more than in step 5, for one request fewer.",
    29: "Each of them has one key more than in the step before.",
    31: "No request uses blocks {kept}. The tree keeps them while there is room.",
    36: "{before} had it before.",
    37: "D has the longest answer, so it decides how many steps there are.",
    40: "D is alone, and a step still reads all weights, for one token.",
    44: "In a server, other requests would come in and share these steps.",
    48: "Attention reads {keys} keys. The first 32 of them were computed by A.",
    49: "Each step reads one key more.",
    52: "{before} had it before.",
    53: "D's table has {used} blocks. 0 and 1 were computed by A, the others by D.",
    55: "Only the end mark will end the answer, and it has to be sampled like any other token.",
}

SCARCE = {
    6: "Block {kept} stays in the tree for D, until its room is needed.",
    11: "D has lost no text. It must compute keys and values again.",
    19: "The tree gave it up: D had it before.",
    21: "Block {kept} stays in the tree for C.",
    26: "C and D wait for room: nine blocks are too few for three such answers.",
    33: "C goes on where it was, with the same tokens as with more memory.",
    37: "D has the pool to itself, so it cannot lose its blocks again.",
    45: "D gets the same tokens as with more memory, only later.",
    52: "The tree gave it up: {before} had it before.",
    53: "Blocks {kept} are what the tree still keeps of B's and C's conversations.",
    60: "With 16 blocks the four were done after {other} steps. This run takes {last}.",
    68: "The tree gave it up: {before} had it before.",
    69: "Blocks {kept} are what the tree still keeps of B's conversation.",
    84: "The tree gave it up: {before} had it before.",
    85: "Blocks {kept} are what the tree still keeps of B's conversation.",
}


def add_asides(
    steps: list[State], states: list[State], asides: dict[int, str], **facts: int
) -> None:
    """Append each sentence to its step and, if that is a quiet one, to the quiet ones after it for as
    long as what it counts is so.

    steps: of a track, changed in place. states: the whole state after each. facts: more numbers.
    """
    words, counted = "", dict[str, Any]()
    for number, (step, (before, now)) in enumerate(
        zip(steps[1:], pairwise(states), strict=True), 1
    ):
        is_quiet, seen = QUIET.fullmatch(step["say"]), _seen(before, now, states[:number])
        if number in asides:
            words = " " + asides[number].format(**facts, last=len(steps) - 1, **seen)
            counted = {one: seen[one] for one in COUNTS if f"{{{one}}}" in asides[number]}
        elif not is_quiet or any(seen[one] != count for one, count in counted.items()):
            words = ""
        step["say"] += words
        words = words if is_quiet else ""


def _seen(before: State, now: State, past: list[State]) -> dict[str, Any]:
    """What can be read off the drawing of a step."""
    keys = [start + count for _, start, count, _ in now["rows"]]
    tables = now["tables"].values()
    grown = [
        table[-1]
        for name, table in now["tables"].items()
        if len(table) > len(before["tables"].get(name, table))
    ]
    return {
        "parts": " + ".join(map(str, keys)),
        "keys": sum(keys),
        "used": len({block for table in tables for block in table}),
        "unshared": sum(map(len, tables)),
        "kept": listed(
            sorted(block for _, blocks, locks in now["tree"] if not locks for block in blocks)
        ),
        "before": _last_holder(grown[0], past) if grown else "",
    }


def _last_holder(block: int, past: list[State]) -> str:
    for state in reversed(past):
        for name, table in state["tables"].items():
            if block in table:
                return str(name)
    return "No request"
