"""Lab 7: text that may be shown, beside tokens that are decoded one by one."""

from collections.abc import Sequence
from typing import Any

from yaie.core.params import SamplingParams
from yaie.demos.runs import Run, ask, run
from yaie.demos.shown import Shown, row
from yaie.demos.subject import Subject

QUESTION = "What is a KV cache?"
TOKENS = 32
CHARACTERS = "Grüße aus 東京 🙂"
BROKEN = "\N{REPLACEMENT CHARACTER}"
STOP_AT, STOP_LENGTH = 40, 14
"""Where the stop string stands in the answer: it reaches over some tokens."""
SHOWN = 6
"""Pieces in the picture."""


def show(subject: Subject) -> Shown:
    """An answer that is cut off by a stop string, and characters of several tokens."""
    with subject.engine() as engine:
        tokenizer, prompt = engine.tokenizer, ask(engine, QUESTION)
        whole = run(engine, [prompt], SamplingParams(temperature=0, max_tokens=TOKENS))
        stop = whole.texts[0][STOP_AT : STOP_AT + STOP_LENGTH]
        params = SamplingParams(temperature=0, max_tokens=TOKENS, stop=(stop,))
        mine = run(engine, [prompt], params)
        ids = tokenizer.encode(CHARACTERS, add_special_tokens=False)
        alone = [tokenizer.decode([token]) for token in whole.token_ids[0]]
        naive = "".join(tokenizer.decode([token]) for token in ids)
        own = _pushed(subject.package.Detokenizer(tokenizer.decode), ids)
    sent = _until(alone, stop)
    leaked = len(sent) - sent.index(stop) if stop in sent else 0
    shown = _leak(mine.texts[0], stop)
    saved = len(whole.token_ids[0]) - len(mine.token_ids[0])
    return Shown(
        f"{QUESTION!r}, to be ended by {stop!r}; and {CHARACTERS!r} in {len(ids)} tokens.",
        ("token by token", "with the loop"),
        (
            row("tokens generated", len(whole.token_ids[0]), len(mine.token_ids[0])),
            row("characters of the stop string shown", leaked, shown),
            row("characters shown before it", len(sent) - leaked, len(mine.texts[0]) - shown),
            row("steps that show nothing yet", alone[:-1].count(""), _silent(mine)),
            row(f"broken characters ({BROKEN})", naive.count(BROKEN), own.count(BROKEN)),
        ),
        f"{shown} characters of the stop string are shown instead of {leaked}, {saved} tokens are not "
        f"generated, and {own.count(BROKEN)} characters are broken instead of {naive.count(BROKEN)}.",
        (
            f"token by token: {naive}",
            f"with the loop : {own}",
            f"the last steps: {'|'.join(piece or '(held back)' for piece in _pieces(mine)[-SHOWN:])}"[
                :80
            ],
        ),
    )


def _pushed(detokenizer: Any, ids: Sequence[int]) -> str:
    return "".join([detokenizer.push(token) for token in ids]) + str(detokenizer.flush())


def _until(pieces: Sequence[str], stop: str) -> str:
    """What has been shown of these pieces when the stop string is in it."""
    text = ""
    for piece in pieces:
        text += piece
        if stop in text:
            break
    return text


def _leak(text: str, stop: str) -> int:
    """How many characters of the stop string stand at the end of a text."""
    return next((n for n in range(len(stop), 0, -1) if text.endswith(stop[:n])), 0)


def _pieces(done: Run) -> list[str]:
    return [step.gained[0][0] for step in done.steps if 0 in step.gained]


def _silent(done: Run) -> int:
    """Steps whose text is held back."""
    return sum(not piece for piece in _pieces(done)[:-1])
