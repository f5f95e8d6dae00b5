"""One row of the tutor's logits, for the figure that filters it and draws from it in the page.

The tutor is all but certain of every token of its own answers, so the row is taken from where it is not:
the answer to request C was made to begin with OPENING. What the page does with the row is held against
the reference by tests/book/test_figure_sampling.py.
"""

import json
from typing import Any

from book.tools.traces import Part, Trace, trace_file
from yaie.bench.evidence import four

LAB = None
REQUEST, OPENING = "C", "Its"
NUM_NAMED = 16
# Another processor adds in another order: its last digits are no news.
TOLERANCE = 0.005


def record(part: Part) -> Trace:
    """The row in the order of the vocabulary, the likeliest tokens' texts, and what was seen before.

    logits: [vocab], rounded to three decimals. named: the likeliest tokens, best first, as
    [token id, text]. What is on record stays as it is while every logit agrees with it to within
    TOLERANCE.
    """
    tokenizer, logits = _run(part)
    best = sorted(range(len(logits)), key=lambda token: -logits[token])[:NUM_NAMED]
    trace = {
        "request": REQUEST,
        "question": four.QUESTIONS[REQUEST],
        "opening": OPENING,
        "named": [[token, tokenizer.decode([token])] for token in best],
        "logits": [round(value, 3) for value in logits],
    }
    kept = _kept()
    return kept if _agree(kept, trace) else trace


def _run(part: Part) -> tuple[Any, list[float]]:
    """The tokenizer, and the logits [vocab] that follow prompt and opening."""
    import torch

    from yaie.core.config import EngineConfig
    from yaie.models.loader import ModelLoader
    from yaie.models.naive_kv import ContiguousKV

    config = EngineConfig(device="cpu", dtype="float32")
    model = ModelLoader(config).load(part("transformer_ops").TransformerOps())
    prompt = model.tokenizer.apply_chat_template(four.messages(REQUEST))
    token_ids = prompt + model.tokenizer.encode(OPENING, add_special_tokens=False)
    tokens, positions = torch.tensor(token_ids), torch.arange(len(token_ids))
    with torch.inference_mode():
        attend = ContiguousKV().attend([(REQUEST, len(token_ids))])
        hidden = model.adapter.forward(tokens, positions, attend)
        logits = model.adapter.logits(hidden[-1:])[0]
    return model.tokenizer, logits.tolist()


def _kept() -> Trace:
    file = trace_file("sampling")
    trace: Trace = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    return trace


def _agree(kept: Trace, new: Trace) -> bool:
    """Whether two traces say the same but for the last digits of the logits."""
    words = [{**trace, "logits": None, "named": None} for trace in (kept, new)]
    if words[0] != words[1] or len(kept["logits"]) != len(new["logits"]):
        return False
    # Two tokens that are as good as tied may change places in `named`: it is a set here.
    names = [sorted(map(tuple, trace["named"])) for trace in (kept, new)]
    pairs = zip(kept["logits"], new["logits"], strict=True)
    return names[0] == names[1] and all(abs(old - now) <= TOLERANCE for old, now in pairs)
