"""A long prompt among three that are answering, under three settings of the same scheduler.

What a step takes was measured: decodes alone (book/evidence/time_company.json), and steps with a chunk
of a prompt (time_chunks.json), whose time and tokens are means over the steps of a run.
"""

import json
from typing import Any

from book.tools.traces import ROOT, Part, Trace
from book.tools.traces._timeline import FOUR, Moment, listed, run
from yaie.explore.timeline import Job

LAB = "scheduler"
EVIDENCE = ROOT / "book/evidence"

TALKERS = ("A", "B", "D")
LONG = "E"
PROMPT = 160
# By then the three have computed their prompts under every setting; the figure begins a little earlier.
ARRIVES = 14
BEFORE = 2
AFTER = 1
SETTINGS: dict[str, dict[str, Any]] = {
    "whole": {"chunked_prefill": False, "token_budget": 256},
    "budget-64": {"token_budget": 64},
    "budget-16": {"token_budget": 16},
}
LABELS = {
    "whole": "whole prompts (chunked_prefill off)",
    "budget-64": "chunks, token_budget 64",
    "budget-16": "chunks, token_budget 16",
}


def record(part: Part) -> Trace:
    """A track for each setting; a step of the figure is a step of the engine. times: [tokens, ms]."""
    jobs = [Job(name, *FOUR[name]) for name in TALKERS]
    jobs.append(Job(LONG, PROMPT, AFTER + 2, arrives=ARRIVES))
    shown = {key: _window(run(part, jobs, **setting)) for key, setting in SETTINGS.items()}
    totals = [_total(LABELS[key], moments) for key, moments in shown.items()]
    scale = {
        "columns": max(len(moments) for moments in shown.values()),
        "top": max(total["longest"] for total in totals),
        "before": BEFORE,
        "prompt": PROMPT,
        "talkers": list(TALKERS),
        "long": LONG,
        "totals": totals,
    }
    return {
        "tracks_label": "Prompts",
        "tracks": {key: _track(key, moments) | scale for key, moments in shown.items()},
        "times": _times(),
    }


def _times() -> list[list[float]]:
    """Measured steps, from few tokens to many: of decodes alone, then of chunks beside decodes."""
    decodes = json.loads((EVIDENCE / "time_company.json").read_text("utf-8"))["sizes"]
    measured = json.loads((EVIDENCE / "time_chunks.json").read_text("utf-8"))
    chunks = sorted(
        (
            (measured["prompt"] + measured["talkers"] * run["steps"]) / run["steps"],
            run["first_token_ms"] / run["steps"],
        )
        for run in measured["budgets"].values()
    )
    few = [(int(size), run["step_ms"]) for size, run in decodes.items() if int(size) < chunks[0][0]]
    return [[round(tokens, 1), round(ms, 2)] for tokens, ms in [*sorted(few), *chunks]]


def _window(moments: list[Moment]) -> list[Moment]:
    """From shortly before the long prompt comes until shortly after its first token."""
    first = _first_token(moments, ARRIVES)
    return moments[ARRIVES - BEFORE : first + 1 + AFTER]


def _first_token(moments: list[Moment], begin: int) -> int:
    """The step that gives the long prompt its first token."""
    for now, moment in enumerate(moments[begin:], begin):
        if LONG in moment.shares and moment.shares[LONG].draws:
            return now
    raise ValueError(f"{LONG} never has a token")


def _total(label: str, moments: list[Moment]) -> dict[str, Any]:
    """What a setting comes to; the wait is from the arrival to the end of the step that draws."""
    first = _first_token(moments, 0)
    wait = moments[BEFORE : first + 1]
    return {
        "label": label,
        "longest": max(sum(moment.step.tokens.values()) for moment in moments),
        "steps": len(wait),
        "wait": sum(sum(moment.step.tokens.values()) for moment in wait),
    }


def _track(key: str, moments: list[Moment]) -> dict[str, Any]:
    setting = SETTINGS[key]
    return {
        "label": LABELS[key],
        "budget": setting["token_budget"] if setting.get("chunked_prefill", True) else None,
        "steps": [_step(key, moments, now) for now in range(len(moments))],
    }


def _step(key: str, moments: list[Moment], now: int) -> dict[str, Any]:
    """tokens: computed, by name. drew: who gained one. done: of the long prompt, after this step."""
    moment = moments[now]
    share = moment.shares.get(LONG)
    return {
        "say": _say(key, moments, now),
        "tokens": moment.step.tokens,
        "drew": [name for name, share in moment.shares.items() if share.draws],
        "done": min(share.start + share.num_tokens, PROMPT) if share else 0,
    }


def _say(key: str, moments: list[Moment], now: int) -> str:
    """What the step computes, and what those who are answering notice of it."""
    moment, talkers = moments[now], listed(TALKERS)
    total = sum(moment.step.tokens.values())
    share = moment.shares.get(LONG)
    if share is None:
        return (
            f"{talkers} are in the middle of their answers. A step computes {total} tokens, "
            "one for each."
        )
    decodes = total - share.num_tokens
    left = PROMPT - share.start - share.num_tokens
    if share.start >= PROMPT:
        return f"{LONG} is one of those who answer now: the step computes {total} tokens, one for each."
    if share.start == 0 and left == 0:
        return (
            f"{LONG} comes, and its {PROMPT} tokens are computed in one step beside {decodes} decodes. "
            f"{talkers} get their tokens when all {total} are computed. {LONG} has its first too."
        )
    if share.start == 0:
        budget = SETTINGS[key]["token_budget"]
        return (
            f"{LONG} comes with {PROMPT} tokens. The {decodes} decodes go first; what is left of the "
            f"budget of {budget} is {LONG}'s: {share.num_tokens} tokens. {left} wait for the next steps."
        )
    if left:
        return (
            f"{decodes} decodes and {share.num_tokens} more tokens of {LONG}'s prompt, {left} are left. "
            f"{talkers} get a token in every step, after {total} computed ones."
        )
    longest = max(sum(earlier.step.tokens.values()) for earlier in moments)
    return (
        f"The last {share.num_tokens} tokens of {LONG}'s prompt: {LONG} has its first token, "
        f"{now - BEFORE + 1} steps after it came. {talkers} never waited for more than {longest} tokens."
    )
