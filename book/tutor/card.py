"""Writes a model card, `README.md` beside the weights, from what was measured: the tutor's, or that
of its sibling (`hybrid_card.py`)."""

import json
from pathlib import Path
from typing import Any

from book.tutor.card_figures import figures, regularised, weakest
from book.tutor.hybrid_card import hybrid_card
from yaie.system.files import write_whole

_CARD = """\
---
license: mit
language: en
library_name: transformers
pipeline_tag: text-generation
---

# The YAIE tutor

A chat model of {millions} million parameters that answers questions about LLM inference engines.
It is the default model of YAIE, so that every lab can run a real model without a network or a GPU.

## Architecture

Llama (`LlamaForCausalLM`): {layers} layers of width {width}, {heads} query heads on {kv_heads} KV
heads of dimension {head_dim} (grouped-query attention), feed-forward size {ffn}, RMSNorm, SiLU, RoPE
with theta {theta}, context of {context} tokens, tied embeddings. The tokenizer is a byte-level BPE
with {vocab} entries; each turn ends with `<|im_end|>`, which is the EOS token. The chat template
writes the BOS token itself, so a rendered prompt must be encoded without special tokens. Weights
are stored in bfloat16.

## Data

All text was written for this repository: the glossary in `book/tutor/knowledge/` and the
question templates in `book/tutor/phrasings/`. `book/tutor/dialogues.py` joins them
into {conversations} conversations of one to 24 turns: questions on {terms} terms, comparisons,
claims to be answered with yes or no, situations, follow-ups, calls of tools that are drawn at random,
KV cache sums with worked steps, small talk, refusals, with and without system messages.
The loss counts the assistant's tokens only.

## Training

    {command}{origin}

{steps} steps of {batch} windows of {context} tokens took {seconds:.0f} s on one {device}{beside}. The
loss curve stands in `training_log.json`; the mean loss of the last {last_steps} steps is {loss:.4f}.

## Evaluation

`python -m book.tutor.evaluate` asks questions whose phrasings are kept out of training, a
split that a test checks, and compares greedy answers in float32 with the facts listed in the
glossary; an answer that recites another entry is wrong. Every wrong answer stands in
`yaie/models/tutor/evaluation.json`. The training templates were broadened after looking at failures
of earlier weights on the questions and off-subject prompts, so expect somewhat less on new ones. The
unusual ways to ask for a reason and the prompts on unseen things were written before the training
data was first widened. They have since set floors by which weights are chosen, so these two figures are
no longer purely held out. The unseen questions of `phrasings/unseen.toml` were
written from the book's chapters before their author saw a training phrasing, and a test bounds their
overlap with the training data: they are the fairest figures here. They are of five kinds: plain
questions, questions to be answered with yes or no, follow-ups in a conversation, questions in a
beginner's words, and questions beside tools, which want a call with the right arguments or none.
{verdict}

| measured | result |
|---|---|
{rows}

## Limits

- It calls tools with simple schemas; nested arguments and several calls in a row are beyond it.
- It knows its glossary and little else: it cannot write code, and a question that combines terms
  in a new way may get the definition of one of them.
- It recites what it was taught; it does not reason. Sums are right on the grid of `arithmetic.py`
  and unreliable elsewhere.
- It may refuse an unusual phrasing, or answer an off-subject prompt built from words it knows.
- English only.

Licence: MIT.
"""

GOAL = 0.95
"""The share of the unseen questions that the tutor was meant to answer."""

_ORIGIN = """

Both trainings went on from weights of the same shape and tokenizer, which answered 91.0% of the unseen
questions. Those were the mean of two trainings, of 3,461 and of 4,380 steps, and go back to weights
that had learned 264 terms from scratch in 3,900 steps of 64 windows, then calls of tools, then wider
ways to ask, in 16,600 steps of 32 windows. Other processes wrote conversations while the GPUs trained.

Since those weights the data have gained 1,082 relations, from which yes-or-no questions are composed,
416 pairs of claims that differ in a word and want opposite answers, 532 situations, and made-up terms,
whose questions are refused. They were written without sight of the unseen questions; a
test of overlap names a wording that stands in both.

`python -m book.tutor.retrain --seeds 29 30 --seconds 290 --processes 40` trained on two GPUs, and
chose among what came out by the 183 questions of `phrasings/validation.toml`, which no conversation
contains. The weights before have 116 of them right, and so has the mean of the two trainings. Mixed
with the weights before, 85% of that mean have 112, 75% have 107, 50% have 109; the trainings alone
have 115 and 112. The mean was chosen. Of the new weights, it alone was asked the unseen questions.

Compared with the weights before, it answers 93.0% of these instead of 91.0%, which are four questions
more: yes or no 87.5% instead of 77.5%, a beginner's words 100% instead of 96%, those beside tools
97.1% instead of 94.3%. It has got worse at plain ones, 91.4% instead of 92.9%, and at follow-ups,
93.3% instead of 96.7%, which is one question of each. Of unusual ways to ask for the reason it answers
82% instead of 78%, and of prompts on things unseen in training it refuses 90% instead of 93%. Of the
held-out questions it answers 98.5% instead of 99.0%, and makes 99.5% of these answers of sentences
from the glossary only, before 100%. The validation questions, of which as many are right as before, do
not show the gain.

An earlier training on part of these data is not in use: it answered 92.0% of the unseen questions, but
72% of the unusual ways to ask for the reason, and refused 87% of the prompts on unseen things. What it
had lost led to the made-up terms and to more ways to ask why. A candidate that refuses
fewer than 90% of those prompts, or answers more than two reasons fewer than the weights before, is no
longer chosen.

The draft model and the MTP head, in the folders `draft` and `mtp` beside this one, went on from those
of the weights before and were distilled from these. The first choice is the tutor's for 93.6% of the
answers' tokens with the draft model, and for 94.0% with the head, at its first depth; before, 91.5%
and 86.6%."""


def _verdict(unseen: dict[str, Any]) -> str:
    """Whether the goal for unseen questions was reached, and where the most is missing."""
    share = f"The goal for them was {GOAL:.0%}; the tutor answers {unseen['right']:.1%}"
    if unseen["right"] >= GOAL:
        return f"{share}."
    return f"{share}, so it is not reached. The weakest kind is: {weakest(unseen)}."


def _command(share: float, stages: list[dict[str, Any]], side_by_side: bool = False) -> str:
    """How the weights were trained: stages that each go on from the one before, and their mean.

    With a single stage and a share below one, the mean is that of the weights before and after it.
    Stages that went on from the same weights `side_by_side` count the share together.
    """
    origin = "yaie/models/tutor/weights"
    start, lines, names = origin, [], []
    for number, log in enumerate(stages, 1):
        how = f"--init {start} --seconds {log['seconds']:g} --batch {log['windows_per_step']}"
        names.append(f"stage{number}")
        start = origin if side_by_side else names[-1]
        rate = f"--lr {log['peak_learning_rate']} --seed {log['seed']}"
        out = f"{regularised(log)} --out {names[-1]}"
        lines.append(f"python -m book.tutor.train {how} {rate}{out}")
    if share < 1 or side_by_side:
        averaged = " ".join(names if len(stages) > 1 and not side_by_side else [origin, *names])
        mean = f"python -m book.tutor.average {averaged} --share {share}"
        lines.append(f"{mean} --out {origin}")
    return "\n    ".join(lines)


def write_card(weights: Path, result: dict[str, Any]) -> None:
    """Fill the card from config.json, training_log.json and the evaluation's figures."""
    config = json.loads((weights / "config.json").read_text(encoding="utf-8"))
    logs = json.loads((weights / "training_log.json").read_text(encoding="utf-8"))
    llama = config["model_type"] == "llama"
    card = _tutor_card(config, logs, result) if llama else hybrid_card(config, logs, result)
    write_whole(weights / "README.md", card)


def _tutor_card(config: dict[str, Any], logs: dict[str, Any], result: dict[str, Any]) -> str:
    stages: list[dict[str, Any]] = logs["stages"]
    side_by_side: bool = logs.get("side_by_side", False)
    log = stages[-1]
    curve = log["loss_curve"]
    logged = [0, *(entry["step"] for entry in curve)]
    return _CARD.format(
        millions=round(log["parameters"] / 1e6, 1),
        layers=config["num_hidden_layers"],
        width=config["hidden_size"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        ffn=config["intermediate_size"],
        theta=log["rope_theta"],
        context=config["max_position_embeddings"],
        vocab=config["vocab_size"],
        conversations=sum(stage["conversations"] for stage in stages),
        terms=log["terms"],
        steps=sum(stage["steps"] for stage in stages),
        batch=log["windows_per_step"],
        command=_command(logs["share"], stages, side_by_side),
        origin=_ORIGIN,
        verdict=_verdict(result["unseen"]),
        seconds=sum(stage["training_seconds"] for stage in stages),
        device=log["device"],
        beside=" each, side by side and added up" if side_by_side else "",
        last_steps=logged[-1] - logged[-2],
        loss=curve[-1]["loss"],
        rows="\n".join(f"| {name} | {value:.1%} |" for name, value in figures(result)),
    )
