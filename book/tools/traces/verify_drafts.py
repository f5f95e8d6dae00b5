"""A text that grows by verified drafts: guess, verify, take back, pass by pass."""

from collections.abc import Sequence
from typing import Any

from book.tools.traces import Part, Trace

LAB = "speculative"
PROMPT = "rename total to sum . total = 0 ; for x in list : total += x ⏎".split()
ANSWER = "sum = 0 ; for x in list : sum += x ⏎ end".split()
WORDS = list(dict.fromkeys(PROMPT + ANSWER))
LONGEST, SHORTEST, MOST, BLOCK = 3, 1, 4, 4


def record(part: Part) -> Trace:
    """Three steps of the figure for each pass, one before the first."""
    package = part("speculative")
    story = [WORDS.index(word) for word in PROMPT + ANSWER]
    index = package.NgramIndex(LONGEST, SHORTEST)
    num_known = len(PROMPT) + 1  # the first token came with the prompt
    steps = [_first(num_known)]
    passes = 0
    while num_known < len(story):
        text = story[:num_known]
        start = num_known - 1
        index.read(text, len(text))
        place = index.place(text)
        left = len(story) - num_known - 1
        drafts = [] if place is None else text[place : place + min(MOST, left)]
        steps.append(_guess(text, place, drafts))
        draws = _draws(story, num_known, drafts)
        gained = package.accepted(drafts, draws)
        passes += 1
        steps.append(_verified(text, drafts, draws, gained, passes))
        kept = package.kept(start, 1 + len(drafts), len(drafts), len(gained), BLOCK)
        num_known += len(gained)
        steps.append(_taken_back(story[:num_known], len(text) + len(drafts), gained, kept))
    return {"steps": steps}


def _draws(story: Sequence[int], num_known: int, drafts: Sequence[int]) -> list[int]:
    """What the scripted model samples after the text and after each draft: after a wrong one it goes
    on with what followed that token in the prompt, as a model might."""
    draws = []
    right = True
    for at in range(len(drafts) + 1):
        before = drafts[at - 1] if at else story[num_known - 1]
        right = right and (at == 0 or before == story[num_known + at - 1])
        draws.append(story[num_known + at] if right else story[story.index(before) + 1])
    return draws


def _cells(text: Sequence[int], kinds: Sequence[str]) -> list[list[dict[str, str]]]:
    """The text in blocks, each token with its kind."""
    cells = [{"word": WORDS[token], "kind": kind} for token, kind in zip(text, kinds, strict=True)]
    return [cells[at : at + BLOCK] for at in range(0, len(cells), BLOCK)]


def _kinds(num_tokens: int) -> list[str]:
    """Of a text whose last token is known and not computed."""
    computed = num_tokens - 1
    return [*["prompt"] * len(PROMPT), *["answer"] * (computed - len(PROMPT)), "next"]


def _first(num_known: int) -> dict[str, Any]:
    text = [WORDS.index(word) for word in (PROMPT + ANSWER)[:num_known]]
    return {
        "say": f"The prompt has been computed, and the model has sampled the first token, {ANSWER[0]}. "
        "It is known, and not computed yet: it is the input of the next pass.",
        "blocks": _cells(text, _kinds(num_known)),
        "rows": [],
        "counts": _counts(num_known, num_known - 1, (num_known - 1) // BLOCK),
    }


def _counts(num_tokens: int, num_computed: int, num_full: int) -> list[list[Any]]:
    return [
        ["tokens known", num_tokens],
        ["computed and valid", num_computed],
        ["full blocks, for the tree", num_full],
    ]


def _guess(text: list[int], place: int | None, drafts: list[int]) -> dict[str, Any]:
    kinds = _kinds(len(text))
    if place is None:
        say = "The end of the text is nowhere before it. Nothing is guessed."
    else:
        length = next(
            n for n in range(LONGEST, 0, -1) if text[place - n : place] == text[len(text) - n :]
        )
        found = " ".join(WORDS[token] for token in text[place - length : place])
        for at in range(place - length, place):
            kinds[at] += " found"
        guess = " ".join(WORDS[token] for token in drafts)
        say = (
            f"The text ends in “{found}”. It has that at token {place - length + 1} too, and goes on "
            f"with “{guess}” there. These are the drafts."
        )
    computed = len(text) - 1
    return {
        "say": say,
        "blocks": _cells(text + drafts, [*kinds, *["draft"] * len(drafts)]),
        "rows": [],
        "counts": _counts(len(text), computed, computed // BLOCK),
    }


def _verified(
    text: list[int], drafts: list[int], draws: list[int], gained: list[int], passes: int
) -> dict[str, Any]:
    right = len(gained) - 1
    rows = []
    for at, draw in enumerate(draws):
        rows.append(
            {
                "input": WORDS[text[-1] if at == 0 else drafts[at - 1]],
                "guess": WORDS[drafts[at]] if at < len(drafts) else "–",
                "draw": WORDS[draw],
                "verdict": "dropped"
                if at > right
                else "bonus"
                if at == len(drafts)
                else "right"
                if at < right
                else "instead",
            }
        )
    if right == len(drafts):
        number = {1: "The one draft was", 2: "Both drafts were"}.get(
            right, f"All {right} drafts were"
        )
        end = f"{number} right, and the sample after the last is a bonus: {len(gained)} tokens."
    elif right == 0:
        end = (
            "The first draft was wrong, and the sample in its place counts: "
            f"{WORDS[gained[0]]}. One token, as without drafts."
        )
    else:
        number = "1 draft was" if right == 1 else f"{right} drafts were"
        end = (
            f"{number} right, and the sample in the place of the next counts: {len(gained)} tokens."
        )
    ends = " The answer is over." if WORDS[gained[-1]] == "end" else ""
    kinds = [*_kinds(len(text)), *["right"] * right, *["wrong"] * (len(drafts) - right)]
    rows_said = f"{len(draws)} rows" if len(draws) > 1 else "one row"
    return {
        "say": f"Pass {passes} computes {rows_said} at once. {end}{ends}",
        "blocks": _cells(text + drafts, kinds),
        "rows": rows,
        "counts": [["rows in the pass", len(draws)], ["tokens that it brings", len(gained)]],
    }


def _taken_back(text: list[int], num_before: int, gained: list[int], kept: Any) -> dict[str, Any]:
    before = -(-num_before // BLOCK)
    blocks = "block" if kept.num_rejected and before - kept.num_blocks == 1 else "blocks"
    back = (
        f" {before - kept.num_blocks} {blocks} of the table held nothing else."
        if before > kept.num_blocks
        else ""
    )
    hold = f"{kept.num_computed} computed tokens hold, in {kept.num_blocks} blocks."
    if kept.num_rejected:
        drafts = "1 draft is" if kept.num_rejected == 1 else f"{kept.num_rejected} drafts are"
        say = f"{drafts} taken back: {hold}{back}"
    else:
        say = f"Nothing has to be taken back: {hold}"
    return {
        "say": say,
        "blocks": _cells(text, _kinds(len(text))),
        "rows": [],
        "counts": _counts(len(text), kept.num_computed, kept.num_full),
    }
