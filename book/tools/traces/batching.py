"""Static against continuous batching: the same requests, as many rows, step by step."""

from collections.abc import Collection
from typing import Any

from book.tools.traces import Part, Trace
from book.tools.traces._timeline import FOUR, Moment, count, listed, run
from yaie.explore.timeline import Job

LAB = "scheduler"

NUM_ROWS = 4
# A to D with answers of a fifth of their length, so that the whole way fits a page, and who comes later.
SCALE = 5
JOBS = [
    *(Job(name, prompt, round(answer / SCALE)) for name, (prompt, answer) in FOUR.items()),
    Job("E", 40, 6, arrives=1),
    Job("F", 44, 3, arrives=3),
    Job("G", 41, 5, arrives=5),
]
KINDS = {"static": "StaticScheduler", "continuous": "Scheduler"}

Row = list[Any]
"""What a row computes in a step: [name, tokens, "prompt" | "answer" | "vain"]; [] if it is empty."""


def record(part: Part) -> Trace:
    """Both schedulers on the same jobs; a step of the figure is a step of both."""
    runs = {way: run(part, JOBS, kind=kind, max_num_seqs=NUM_ROWS) for way, kind in KINDS.items()}
    drawn = {way: _rows(moments) for way, moments in runs.items()}
    longest = max(len(moments) for moments in runs.values())
    steps = []
    for now in range(longest):
        step: dict[str, Any] = {"say": _say(runs, now)}
        for way, moments in runs.items():
            ended = now >= len(moments)
            waiting = [] if ended else sorted(moments[now].step.waiting)
            rows: list[Row] = [[]] * NUM_ROWS if ended else drawn[way][now]
            step[way] = {"rows": rows, "waiting": waiting}
        steps.append(step)
    requests = [
        {"name": job.name, "arrives": job.arrives + 1, "prompt": job.prompt, "answer": job.output}
        for job in JOBS
    ]
    return {"requests": requests, "steps": steps}


def _rows(moments: list[Moment]) -> list[list[Row]]:
    """The rows of each step: a request takes the first one that is empty, and stays."""
    names: list[str | None] = [None] * NUM_ROWS
    steps = []
    for moment in moments:
        tokens = moment.step.tokens
        names = [name if name in tokens else None for name in names]
        for name in tokens:
            if name not in names:
                names[names.index(None)] = name
        steps.append([[name, tokens[name], _what(name, moment)] if name else [] for name in names])
    return steps


def _what(name: str, moment: Moment) -> str:
    if name in moment.step.wasted:
        return "vain"
    return "answer" if name in moment.step.output else "prompt"


def _say(runs: dict[str, list[Moment]], now: int) -> str:
    """What the step brings, and why."""
    news = [
        _arrivals(runs, now),
        _continuous(runs["continuous"], now),
        _static(runs["static"], now),
    ]
    told = " ".join(sentence for sentence in news if sentence) or _quiet(runs, now)
    steps = {way: len(moments) for way, moments in runs.items()}
    if now == max(steps.values()) - 1:
        tokens = sum(job.output for job in JOBS)
        told += f" The same {tokens} tokens: {steps['static']} steps, or {steps['continuous']}."
    return told


def _arrivals(runs: dict[str, list[Moment]], now: int) -> str:
    came = {job.name for job in JOBS if job.arrives == now}
    if not came:
        return ""
    if all(_starts(moments, now) >= came for moments in runs.values()):
        return (
            f"{listed(came)} arrive and take the rows under both. Their prompts are computed in one "
            "step, which gives each its first token."
        )
    return f"{listed(came)} {_s('arrive', came)} and {_s('wait', came)}: every row is taken."


def _continuous(moments: list[Moment], now: int) -> str:
    if now == len(moments):
        return f"Continuous: after {now} steps all are served."
    started, left = _starts(moments, now), _left(moments, now)
    if now == 0 or not (started or left):
        return ""
    gone = f"{listed(left)} ended" if left else "a row was free"
    if started:
        return f"Continuous: {gone}, and {listed(started)} {_s('take', started)} the row at once."
    return f"Continuous: {gone}, and no request waits for the row."


def _static(moments: list[Moment], now: int) -> str:
    if now == 0 or now >= len(moments):
        return ""
    started, left = _starts(moments, now), _left(moments, now)
    if started:
        return f"Static: the batch has ended with its last request; {listed(started)} are the next."
    if not left:
        return ""
    rows = count(len(moments[now].step.wasted), "row")
    waiting = moments[now].step.waiting
    held = f", while {listed(waiting)} {_s('wait', waiting)}" if waiting else ""
    return (
        f"Static: {listed(left)} ended, but the batch is closed until its last request ends: "
        f"{rows} computed for no request{held}."
    )


def _quiet(runs: dict[str, list[Moment]], now: int) -> str:
    """A step in which no request comes and none goes."""
    static = runs["static"][now].step.wasted if now < len(runs["static"]) else set()
    lost = f", {len(static)} of them for no request" if static else ""
    rows = {
        way: count(len(moments[now].shares) if now < len(moments) else 0, "row")
        for way, moments in runs.items()
    }
    return (
        "No request comes and none ends. "
        f"Static computes {rows['static']}{lost}; continuous {rows['continuous']}."
    )


def _alive(moments: list[Moment], now: int) -> set[str]:
    """Who gains a token in a step."""
    if now >= len(moments):
        return set()
    return {name for name, share in moments[now].shares.items() if share.draws} - (
        moments[now].step.wasted
    )


def _starts(moments: list[Moment], now: int) -> set[str]:
    """Who is computed for the first time."""
    if now >= len(moments):
        return set()
    return {name for name, share in moments[now].shares.items() if share.start == 0}


def _left(moments: list[Moment], now: int) -> set[str]:
    """Who had its last token in the step before."""
    return _alive(moments, now - 1) - _alive(moments, now) if now else set()


def _s(verb: str, names: Collection[str]) -> str:
    """The verb as it goes with one name or with several."""
    return verb if len(names) > 1 else f"{verb}s"
