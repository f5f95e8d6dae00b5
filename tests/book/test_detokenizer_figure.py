"""The figure `detokenizer` shows what the reference does to text and stop strings, caret by caret."""

import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models

from book.tools.figures import load_figure
from solutions.engine.detokenizer import Detokenizer
from solutions.engine.stop_checker import StopChecker
from tests.judges.multibyte import texts

BOOK = Path(__file__).parents[2] / "book"
DATA = load_figure("detokenizer")["data"]
STOPS = ["", "€€", "\n\nUser:", " c", "ab"]
WAYS = ["level", "fallback"]
Token = dict[str, Any]


@pytest.fixture(scope="module")
def page(browser: Any) -> Iterator[Any]:
    """A page with the figure's scripts and nothing else."""
    page = browser.new_page()
    for name in ("base", "stage", "timeline", "detokenizer"):
        page.add_script_tag(path=str(BOOK / f"theme/figures/{name}.js"))
    yield page
    page.close()


def byte_level(tokens: list[Token]) -> str:
    found = b"".join(
        one["text"].encode() if "text" in one else bytes([one["byte"]]) for one in tokens
    )
    return found.decode("utf-8", "replace")


def piece(token: Token) -> str:
    """As a vocabulary of SentencePiece writes it."""
    return token["text"].replace(" ", "▁") if "text" in token else f"<0x{token['byte']:02X}>"


@cache
def byte_fallback(pieces: tuple[str, ...]) -> Callable[[list[int]], str]:
    """The tokenizers library's decoder of Llama 2, for a vocabulary of these pieces."""
    tokenizer = Tokenizer(
        models.BPE(vocab={name: i for i, name in enumerate(pieces)}, merges=[], byte_fallback=True)
    )
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
         decoders.Strip(" ", 1, 0)]
    )  # fmt: skip
    decode: Callable[[list[int]], str] = tokenizer.decode
    return decode


def by_the_reference(tokens: list[Token], stop: str, way: str) -> list[dict[str, Any]]:
    """What solutions/engine makes of the tokens: the same fields as the figure's states."""
    pieces = tuple(dict.fromkeys(map(piece, tokens)))
    decode = {
        "level": lambda ids: byte_level([tokens[i] for i in ids]),
        "fallback": lambda ids: byte_fallback(pieces)(
            [pieces.index(piece(tokens[i])) for i in ids]
        ),
    }[way]
    detokenizer, checker = Detokenizer(decode), StopChecker([stop] if stop else [])
    states: list[dict[str, Any]] = []
    sent = ""

    def note(at: int, new: str, *, is_end: bool) -> bool:
        nonlocal sent
        safe, found = checker.push(new)
        sent += safe + (checker.flush() if is_end and not found else "")
        carets = {"start": detokenizer._start, "shown": detokenizer._shown}
        told = {"fresh": new, "sent": sent, "held": checker._held, "found": found}
        states.append({"at": at, **carets, **told, "isEnd": is_end})
        return found is not None

    for index in range(len(tokens)):
        if note(index + 1, detokenizer.push(index), is_end=False):
            return states
        # A token that the window leaves out would shift the carets.
        assert len(detokenizer._ids) == index + 1
    note(len(tokens), detokenizer.flush(), is_end=True)
    return states


def by_the_figure(
    page: Any, many: list[tuple[list[Token], str, str]]
) -> list[list[dict[str, Any]]]:
    found: list[list[dict[str, Any]]] = page.evaluate(
        "many => many.map(([tokens, stop, way]) => detokenizer.stream(tokens, [stop], way).states)",
        [list(one) for one in many],
    )
    return found


def alike(page: Any, many: list[tuple[list[Token], str, str]]) -> int:
    """Compares all; returns how many states there were."""
    count = 0
    for (tokens, stop, way), shown in zip(many, by_the_figure(page, many), strict=True):
        expected = by_the_reference(tokens, stop, way)
        assert [{key: state[key] for key in expected[0]} for state in shown] == expected, (
            tokens,
            way,
        )
        count += len(expected)
    return count


def cut(page: Any, typed: list[str], way: str) -> list[list[Token]]:
    found: list[list[Token]] = page.evaluate(
        "([typed, way]) => typed.map((text) => detokenizer.cut(text, way))", [typed, way]
    )
    return found


@pytest.mark.parametrize("way", WAYS)
def test_typed_texts_are_streamed_as_the_reference_streams_them(page: Any, way: str) -> None:
    typed = [DATA["text"], r"a\n\nUser: b", *(text[:28] for text in texts())]
    tokens = cut(page, typed, way)
    many = [(one, STOPS[i % len(STOPS)], way) for i, one in enumerate(tokens)]
    assert alike(page, many) > 2000


@pytest.mark.parametrize("way", WAYS)
def test_bytes_that_are_no_text_move_the_carets_as_the_reference_moves_them(
    page: Any, way: str
) -> None:
    rng = random.Random(7)
    pool: list[Token] = [
        *({"byte": byte} for byte in (0xE2, 0x82, 0xAC, 0xC3, 0xA9, 0xF0, 0x9F, 0x99, 0x82, 0xFF, 0x41)),
        {"text": " cat"}, {"text": "ab"}, {"text": "!"},
    ]  # fmt: skip
    rows = [rng.choices(pool, k=rng.randint(1, 40)) for _ in range(300)]
    rows += [[{"byte": 0xE2}] * 40, [*([{"byte": 0xF0}] * 30), {"text": "a"}]]
    assert alike(page, [(row, rng.choice(STOPS), way) for row in rows]) > 3000


@pytest.mark.parametrize("way", WAYS)
def test_a_text_s_tokens_are_the_text(page: Any, way: str) -> None:
    typed = [text[:9] for text in texts() if len(text[:9].encode()) < 24]
    decoded = [
        page.evaluate("([t, way]) => detokenizer.WAYS[way](t)", [one, way])
        for one in cut(page, typed, way)
    ]
    assert len(typed) > 50
    assert decoded == typed
    assert cut(page, ["the cat"], way)[0][-1] == {"text": " cat"}


def test_the_question_has_its_answer(page: Any) -> None:
    [tokens] = cut(page, [DATA["text"]], DATA["way"])
    [states] = by_the_figure(page, [(tokens, DATA["stop"], DATA["way"])])
    first = next(i for i, state in enumerate(states) if "€" in state["sent"])
    assert tokens[first] == {"byte": 0xA9}
    assert [state["fresh"] for state in states[:first]].count("€") == 1
    assert states[DATA["open"] - 1]["broken"] == {"text": "����", "shown": "€"}
