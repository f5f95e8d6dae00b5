"""Lab 21: an answer that is kept to a schema, by masks and by forced runs."""

import json
from typing import Any

import numpy as np

from yaie.core.constraint import Constraint
from yaie.core.params import SamplingParams
from yaie.demos.runs import Run, ask, run
from yaie.demos.shown import Shown, counted, row
from yaie.demos.subject import Subject
from yaie.engine.input.grammars.own_grammars import text_tokens
from yaie.engine.llm_engine import LLMEngine

QUESTION = "Is a block table a list? Answer in JSON."
FIELDS: dict[str, tuple[type, dict[str, Any]]] = {
    "is_a_list": (bool, {"type": "boolean"}),
    "number_of_entries": (int, {"type": "integer"}),
}
SCHEMA = {
    "type": "object",
    "properties": {name: schema for name, (_, schema) in FIELDS.items()},
    "required": list(FIELDS),
    "additionalProperties": False,
}
MOST_TOKENS = 40


def show(subject: Subject) -> Shown:
    """The same question without a schema and with one."""
    constraint = Constraint("json_schema", json.dumps(SCHEMA))
    with subject.engine() as engine:
        prompt = ask(engine, QUESTION)
        free = run(engine, [prompt], SamplingParams(temperature=0, max_tokens=MOST_TOKENS))
        params = SamplingParams(temperature=0, max_tokens=MOST_TOKENS, constraint=constraint)
        kept = run(engine, [prompt], params)
        vocab = engine.model.adapter.vocab_size
        counts = _allowed(subject.package, engine, kept)
    tokens = len(kept.token_ids[0])
    drafts, right = (
        [int(done.stats[name]) for done in (free, kept)]
        for name in ("draft_tokens", "accepted_draft_tokens")
    )
    mean = sum(counts) / max(1, len(counts))
    return Shown(
        f"{QUESTION!r}, with a schema of a boolean and an integer.",
        ("no schema", "with masks"),
        (
            row("fits the schema", _fits(free.texts[0]), _fits(kept.texts[0])),
            row("tokens of the answer", len(free.token_ids[0]), tokens),
            row("steps", free.num_steps, kept.num_steps),
            row("tokens allowed, of the vocabulary", vocab, f"{mean:,.1f}"),
            row("places with one token allowed", "", sum(count == 1 for count in counts)),
            row("forced tokens that were sent", *drafts),
            row("of them, right", *right),
        ),
        f"{right[1]} of {counted(tokens, 'token')} were forced: the model was called "
        f"{kept.num_steps} times, and chose among {mean:,.1f} of {vocab:,} tokens on average.",
        (_line("no schema  ", free.texts[0]), _line("with schema", kept.texts[0])),
    )


def _line(name: str, text: str) -> str:
    shown = json.dumps(text, ensure_ascii=False)
    return f"{name}  {shown if len(shown) <= 66 else shown[:65] + '…'}"


def _fits(text: str) -> str:
    """Whether a text is JSON with the two fields, looked at without the part."""
    try:
        value = json.loads(text)
    except ValueError:
        return "no"
    right = isinstance(value, dict) and value.keys() == FIELDS.keys()
    return "yes" if right and all(type(value[k]) is t for k, (t, _) in FIELDS.items()) else "no"


def _allowed(part: Any, engine: LLMEngine, kept: Run) -> list[int]:
    """How many tokens the part's masks allow at each place of the answer."""
    automaton = part.ByteAutomaton(part.schema_grammar(SCHEMA))
    tokens = text_tokens(engine.tokenizer, engine.model.adapter.vocab_size)
    masks = part.TokenMasks(automaton, part.TokenTrie(tokens), engine.model.eos_token_ids, most=64)
    state, counts = automaton.start, []
    for token in kept.token_ids[0]:
        bits = np.unpackbits(masks.mask(state), bitorder="little")
        counts.append(int(bits.sum()))
        for byte in b"" if token in engine.model.eos_token_ids else tokens[token]:
            state = automaton.step(state, byte)
    return counts
