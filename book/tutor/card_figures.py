"""What both cards have, the tutor's and its sibling's: an evaluation's figures, a training's options."""

from collections import Counter
from typing import Any

from book.tutor.unseen import KINDS, unseen_questions

LABELS = {"yes_no": "yes or no", "follow_up": "follow-ups", "tool": "beside tools"}
"""How a row names a kind of unseen question, where its name is no word."""


def figures(result: dict[str, Any]) -> list[tuple[str, float]]:
    """Of `evaluation.json`: what was measured, and the share."""
    held_out, system = result["held_out"], result["with_system_prompt"]
    refusals, sums, talks = result["refusals"], result["sums"], result["conversations"]
    whys, unknown = result["unusual_whys"], result["unknown_things"]
    found = [
        (f"held-out questions answered with all facts, of {held_out['questions']}", held_out["right"]),
        ("... that end by themselves within 160 tokens", held_out["ended"]),
        ("... made of sentences from the glossary only", held_out["known_sentences"]),
        ("... refused by mistake", held_out["refused"]),
        (f"under system messages of up to 1,200 tokens, of {system['questions']}", system["right"]),
        (f"unusual ways to ask for the reason answered, of {whys['questions']}", whys["right"]),
        (f"off-subject prompts refused, of {refusals['off_subject']}", refusals["off_subject_refused"]),
        (f"prompts on things unseen in training refused, of {unknown['prompts']}", unknown["refused"]),
        (f"on-subject prompts refused, of {refusals['on_subject']}", refusals["on_subject_refused"]),
        (f"sums right on held-out numbers, of {sums['questions']}", sums["right"]),
        (f"conversations whose last answer is right, of {talks['conversations']}", talks["right"]),
    ]  # fmt: skip
    unseen = result["unseen"]
    found.append((f"unseen questions, of {unseen['questions']}", unseen["right"]))
    counts = Counter(question.kind for question in unseen_questions())
    found += [(f"... {LABELS.get(kind, kind)}, of {counts[kind]}", unseen[kind]) for kind in KINDS]
    return found


def weakest(unseen: dict[str, Any]) -> str:
    """The kind of unseen question that is answered the least, as a row names it."""
    worst = min(KINDS, key=lambda kind: float(unseen[kind]))
    return LABELS.get(worst, worst)


def regularised(log: dict[str, Any]) -> str:
    """The options that logs of earlier trainings do not have, where they are not at their defaults."""
    values = {"dropout": 0.0, "first_word": 1.0, "systems": 1.0}
    options = [
        f" --{name.replace('_', '-')} {log[name]:g}"
        for name, default in values.items()
        if log.get(name, default) != default
    ]
    return "".join(options) + (" --mean" if log.get("mean") else "")
