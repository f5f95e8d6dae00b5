"""A text grows token by token: the automaton's state, the mask and the forced run before each."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from book.tools.traces import ROOT, Part, Trace
from yaie.core.grammar import Grammar, Repeat, any_of, between, choice, concat, optional, text

LAB = "structured_output"
EOS = "<end>"

TIGHT = ["{", "}", '"', '{"', "ok", ":", '":', '":t', "true", "rue", "false", ',"', "n", "0", "12"]
LOOSE = [*TIGHT, " ", "{ ", '": ', ', "', " true", " 12", "\n", " }"]
SCHEMA = json.loads((ROOT / "book/examples/two_fields.json").read_text("utf-8"))


def record(part: Part) -> Trace:
    """A track without whitespace, whose states can be counted by hand, and one as JSON has it."""
    package = part("structured_output")
    tight = _run(
        package, _by_hand(), TIGHT, ['{"', "ok", '":t', "rue", ',"', "n", '":', "12", "}", EOS]
    )
    loose = _run(
        package,
        package.schema_grammar(SCHEMA),
        LOOSE,
        ['{"', "ok", '": ', "true", ', "', "n", '":', " 12", "}", EOS],
    )
    return {
        "tracks_label": "Grammar",
        "tracks": {
            "tight": {"label": "without whitespace", **tight},
            "loose": {"label": "with whitespace, as the engine has it", **loose},
        },
    }


def _by_hand() -> Grammar:
    """SCHEMA without whitespace."""
    natural = concat(between(ord("1"), ord("9")), Repeat(between(ord("0"), ord("9")), 0, None))
    number = concat(optional(any_of(b"-")), choice([any_of(b"0"), natural]))
    return concat(
        text(b'{"ok":'),
        choice([text(b"true"), text(b"false")]),
        optional(concat(text(b',"n":'), number)),
        text(b"}"),
    )


def _run(
    package: Any, grammar: Grammar, words: Sequence[str], output: Sequence[str]
) -> dict[str, Any]:
    vocabulary = [*words, EOS]
    end = len(words)
    automaton = package.ByteAutomaton(grammar)
    trie = package.TokenTrie([*(word.encode() for word in words), b""])
    masks = package.TokenMasks(automaton, trie, frozenset((end,)), most=64)
    matcher = package.Matcher(automaton, masks)
    bits = np.zeros((len(vocabulary) + 7) // 8, np.uint8)
    state, walked, steps = automaton.start, [automaton.start], []
    for place in range(len(output) + 1):
        matcher.fill(bits)
        allowed = np.unpackbits(bits, bitorder="little")[: len(vocabulary)].tolist()
        forced = matcher.forced(8)
        done = list(output[:place])
        ended = EOS in done
        names = [_shown(vocabulary[token]) for token in forced]
        before = b"" if not done or ended else done[-1].encode()
        path = [
            {
                "number": number,
                "byte": "" if not index else _shown(chr(before[index - 1])),
                "final": automaton.is_final(number),
            }
            for index, number in enumerate(walked)
        ]
        next_bytes = [] if ended else _next(automaton, state)
        steps.append(
            {
                "say": _say(done, allowed, names, state, automaton.is_final(state), ended),
                "picture": _picture(path, next_bytes),
                "output": [_shown(word) for word in done],
                "path": path,
                "next": next_bytes,
                "allowed": allowed,
                "mask": " ".join(f"{byte:08b}" for byte in bits.tolist()),
                "forced": names,
            }
        )
        if place < len(output):
            token = vocabulary.index(output[place])
            if not matcher.accept(token):
                raise ValueError(f"{output[place]!r} may not come in state {state}")
            walked = [state]
            for byte in words[token].encode() if token < end else b"":
                state = automaton.step(state, byte)
                walked.append(state)
    return {"vocabulary": [_shown(word) for word in vocabulary], "steps": steps}


def _picture(path: Sequence[dict[str, Any]], leads: Sequence[dict[str, Any]]) -> str:
    """What the picture of the automaton shows, in words."""
    walk = " ".join(f"{at['byte']} {at['number']}".strip() for at in path)
    on = ", ".join(f"{lead['bytes']} to {lead['state']}" for lead in leads) or "nothing leads on"
    return f"States on the bytes of the last token: {walk}. From there: {on}."


def _next(automaton: Any, state: int) -> list[dict[str, Any]]:
    """The bytes that lead on, those with the same goal together."""
    goals: dict[int, list[int]] = {}
    for byte in automaton.live_bytes(state):
        goals.setdefault(automaton.step(state, byte), []).append(byte)
    return [{"bytes": _ranges(values), "state": goal} for goal, values in goals.items()]


def _ranges(values: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return " ".join(
        _shown(chr(a)) if a == b else f"{_shown(chr(a))}-{_shown(chr(b))}" for a, b in runs
    )


def _shown(word: str) -> str:
    """As a person can see it."""
    return word.translate({ord(" "): "␣", ord("\n"): "\\n", ord("\t"): "\\t", ord("\r"): "\\r"})


def _say(
    done: Sequence[str],
    allowed: Sequence[int],
    forced: Sequence[str],
    state: int,
    final: bool,
    ended: bool,
) -> str:
    written = f"{_shown(done[-1])} has come" if done else "Nothing is written"
    if ended:
        return f"{written}: the output is over, and nothing may follow."
    may = f"{sum(allowed)} of {len(allowed)} tokens may come"
    end = ", the end among them: this state is final" if final else ""
    run = f"Forced: {' '.join(forced)}." if forced else "Nothing is forced."
    return f"{written}. State {state}: {may}{end}. {run}"
