"""The card of the tutor's sibling: how it was made, and its figures beside the tutor's."""

import json
from typing import Any

from book.tutor.card_figures import figures, regularised, weakest
from yaie.models.tutor import TUTOR_DIR

_CARD = """\
---
license: mit
language: en
library_name: transformers
pipeline_tag: text-generation
---

# The YAIE tutor's sibling, a hybrid

A chat model of {millions} million parameters that answers questions about LLM inference engines.
{states} of its {layers} layers keep a short state in place of keys and values. YAIE serves it as
`tutor-hybrid`, so that an engine's pool of states can run a real model without a network or a GPU.
It is for that: to learn about engines, ask the tutor, which knows more.

## Architecture

LFM2 (`Lfm2ForCausalLM`): {layers} layers of width {width}. Two of three are short convolutions
over {taps} tokens between two gates; every third is attention with {heads} query heads on {kv_heads} KV
heads of dimension {head_dim}. Feed-forward size {ffn}, RMSNorm, SiLU, RoPE with theta {theta}, context
of {context} tokens, tied embeddings. Tokenizer and chat template are the tutor's, byte for byte. Weights
are stored in bfloat16. A running request keeps {state_numbers:,} numbers of state, whatever its length,
and {kv_numbers} numbers of keys and values for each token.

## Data

The tutor's: conversations that `book/tutor/dialogues.py` joins from the glossary in
`book/tutor/knowledge/` and the templates in `book/tutor/phrasings/`, all written for this repository.
It saw {conversations:,} of them, each once: questions on {terms} terms, comparisons, claims,
situations, follow-ups, calls of tools, KV cache sums, small talk, refusals. The loss counts the
assistant's tokens only.

## Training

    {command}

One training, from scratch. {steps:,} steps of {batch} windows of {context} tokens took
{seconds:.0f} s on one {device}; before them, processes began to write conversations. The weights
are the mean of those of the training's second half, the latest counting the most. The loss curve stands
in `training_log.json`; the mean loss of the last {last_steps} steps is {loss:.4f}.

## Evaluation

`python -m book.tutor.evaluate --weights {folder}` asks what the tutor's card
describes: questions whose phrasings are kept out of training, and {unseen} unseen ones, whose author had
not seen a training phrasing. Answers are greedy, in float32, by the transformers library. Of the
sibling, these weights alone were asked the unseen questions, once. Every wrong answer stands in
`evaluation.json`.

| measured | result | the tutor |
|---|---|---|
{rows}

Of the unseen questions, the weakest kind is: {weakest}.

## Limits

- It has half the tutor's parameters and was trained for minutes: where the table says so, it knows less.
- It calls tools with simple schemas; nested arguments and several calls in a row are beyond it.
- It knows the glossary and little else, recites what it was taught, and does not reason.
- It may refuse an unusual phrasing, or give the definition of another term.
- English only.

Licence: MIT.
"""

_FOLDER = "yaie/models/tutor/hybrid"


def _command(log: dict[str, Any]) -> str:
    """How it was trained, on one line."""
    how = f"--architecture {log['architecture']} --seconds {log['seconds']:g}"
    rate = (
        f"--batch {log['windows_per_step']} --lr {log['peak_learning_rate']} --seed {log['seed']}"
    )
    return f"python -m book.tutor.train {how} {rate}{regularised(log)}"


def hybrid_card(config: dict[str, Any], log: dict[str, Any], result: dict[str, Any]) -> str:
    """The card's text. config, log, result: config.json, training_log.json and evaluation.json."""
    curve = log["loss_curve"]
    logged = [0, *(entry["step"] for entry in curve)]
    width, heads, kv_heads = (
        config[name] for name in ("hidden_size", "num_attention_heads", "num_key_value_heads")
    )
    states = config["layer_types"].count("conv")
    attending = config["num_hidden_layers"] - states
    tutor = json.loads((TUTOR_DIR / "evaluation.json").read_text(encoding="utf-8"))
    rows = [
        f"| {name} | {value:.1%} | {other:.1%} |"
        for (name, value), (_, other) in zip(figures(result), figures(tutor), strict=True)
    ]
    return _CARD.format(
        millions=round(log["parameters"] / 1e6, 1),
        states=states,
        layers=config["num_hidden_layers"],
        width=width,
        taps=config["conv_L_cache"],
        heads=heads,
        kv_heads=kv_heads,
        head_dim=width // heads,
        ffn=config["intermediate_size"],
        theta=log["rope_theta"],
        context=config["max_position_embeddings"],
        state_numbers=states * (config["conv_L_cache"] - 1) * width,
        kv_numbers=attending * 2 * kv_heads * (width // heads),
        conversations=log["conversations"],
        terms=log["terms"],
        command=_command(log),
        steps=log["steps"],
        batch=log["windows_per_step"],
        seconds=log["training_seconds"],
        device=log["device"],
        last_steps=logged[-1] - logged[-2],
        loss=curve[-1]["loss"],
        folder=_FOLDER,
        unseen=result["unseen"]["questions"],
        rows="\n".join(rows),
        weakest=weakest(result["unseen"]),
    )
