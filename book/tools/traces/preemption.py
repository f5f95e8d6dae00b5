"""A pool that is too small for four requests: which has to go, and what coming back costs."""

from collections.abc import Iterable
from typing import Any

from book.tools.traces import Part, Trace
from book.tools.traces._timeline import BLOCK_SIZE, FOUR, Moment, Share, count, listed, run
from yaie.explore.timeline import Job

LAB = "scheduler"

BLOCKS = 16
HOST_BLOCKS = 8
JOBS = [Job(name, prompt, answer) for name, (prompt, answer) in FOUR.items()]
TRACKS = {"recompute": "recompute", "swap": "swap to the host pool"}


def record(part: Part) -> Trace:
    """A track for each way to preempt; its steps are those of the engine in which something changes."""
    tracks = {}
    for key, label in TRACKS.items():
        swap = key == "swap"
        host = HOST_BLOCKS if swap else 0
        moments = run(part, JOBS, num_blocks=BLOCKS, host_blocks=host, swap=swap)
        tracks[key] = {"label": label, "host_blocks": host, "steps": _frames(moments)}
    return {"tracks_label": "Preempt by", "tracks": tracks}


def _frames(moments: list[Moment]) -> list[dict[str, Any]]:
    """The pictures: every step that is told, with what has been counted up to it."""
    ledger = Ledger()
    frames = []
    for now, moment in enumerate(moments):
        ledger.enter(moment)
        if _is_told(moments, now):
            words = _say(moments, now)
            if now == len(moments) - 1:
                words = ledger.summary()
            frames.append({"say": words, "now": now + 1} | ledger.picture(moment))
    return frames


def _is_told(moments: list[Moment], now: int) -> bool:
    """Whether a request comes, goes or takes a block; one that is left alone may grow untold."""
    if now in (0, len(moments) - 1):
        return True
    before, moment = moments[now - 1], moments[now]
    grows = len(moment.shares) > 1 and bool(_grown(before, moment))
    return moment.shares.keys() != before.shares.keys() or grows


class Ledger:
    """What adds up over the steps: tokens computed, tokens computed twice, blocks moved.

    It also remembers whose a block was, for blocks that only the tree still holds.
    """

    def __init__(self) -> None:
        self._reached: dict[str, int] = {}
        self._owner: dict[int, str] = {}
        self._computed = 0
        self._twice = 0
        self._moved = 0

    def enter(self, moment: Moment) -> None:
        """Count one step."""
        for name, share in moment.shares.items():
            end, reached = share.start + share.num_tokens, self._reached.get(name, 0)
            self._computed += share.num_tokens
            self._twice += max(0, min(end, reached) - share.start)
            self._reached[name] = max(end, reached)
            self._owner |= dict.fromkeys(share.blocks, name)
        self._moved += moment.out + moment.back

    def picture(self, moment: Moment) -> dict[str, Any]:
        """pool: a letter a block, small where only the tree holds it, empty where it is free."""
        pool = [""] * BLOCKS
        for block in moment.kept:
            pool[block] = self._owner[block].lower()
        for name, share in moment.shares.items():
            for block in share.blocks:
                pool[block] = name
        return {
            "queue": sorted(moment.step.waiting),
            "running": [
                {"name": name, "computes": share.num_tokens, "tokens": share.known}
                for name, share in moment.shares.items()
            ],
            "pool": pool,
            "host": [name for name, blocks in moment.on_host.items() for _ in range(blocks)],
            "computed": self._computed,
            "twice": self._twice,
            "moved": self._moved,
        }

    def summary(self) -> str:
        """What preempting has cost in the end."""
        needed = self._computed - self._twice
        cost = f"{self._twice} of them twice" if self._twice else "none of them twice"
        moved = f"{self._moved} blocks" if self._moved else "No block"
        return (
            f"All four have their answers. {self._computed} tokens were computed, {cost}, for "
            f"{needed} that had to be. {moved} moved between the pools."
        )


def _say(moments: list[Moment], now: int) -> str:
    """What changed since the step before, and why."""
    moment = moments[now]
    before = moments[now - 1] if now else Moment()
    known = {name for earlier in moments[:now] for name in earlier.shares}
    come = moment.shares.keys() - before.shares.keys()
    gone = before.shares.keys() - moment.shares.keys() - moment.step.preempted
    grown = _grown(before, moment)
    told = [
        _ended(before, moment, gone),
        _preempted(before, moment, grown),
        "" if moment.step.preempted else _more_room(before, moment, grown),
        _let_in(moment, come - known),
        *(_back(name, moments, now) for name in sorted(come & known)),
    ]
    return " ".join(sentence for sentence in told if sentence)


def _ended(before: Moment, moment: Moment, names: Iterable[str]) -> str:
    gone = listed(list(names))
    stay = len(set(moment.kept) - set(before.kept))
    if not gone or not stay:
        return f"{gone} ended." if gone else ""
    return (
        f"{gone} ended; {count(stay, 'block')} of it stay in the tree until their room is needed."
    )


def _grown(before: Moment, moment: Moment) -> dict[str, Share]:
    """Who has more blocks than in the step before."""
    both = before.shares.keys() & moment.shares.keys()
    return {
        name: moment.shares[name]
        for name in sorted(both)
        if len(moment.shares[name].blocks) > len(before.shares[name].blocks)
    }


def _let_in(moment: Moment, names: Iterable[str]) -> str:
    chosen = sorted(names)
    if not chosen:
        return ""
    prompts = " or ".join(str(tokens) for tokens in sorted({job.prompt for job in JOBS}))
    sizes = [len(moment.shares[name].blocks) for name in chosen]
    return (
        f"{listed(chosen)} are let in. A prompt of {prompts} tokens takes {max(sizes)} blocks of "
        f"{BLOCK_SIZE} slots: {sum(sizes)} of the {BLOCKS} are taken."
    )


def _needs(grown: dict[str, Share]) -> str:
    """Who takes a block, and for which token."""
    alike: dict[tuple[int, int], list[str]] = {}
    for name, share in grown.items():
        alike.setdefault((share.start + 1, len(share.blocks)), []).append(name)
    return " and ".join(
        f"{listed(names)} {'need' if names[1:] else 'needs'} a {_nth(blocks)} block for "
        f"{'their' if names[1:] else 'its'} {token}th token"
        for (token, blocks), names in alike.items()
    )


def _more_room(before: Moment, moment: Moment, grown: dict[str, Share]) -> str:
    if not grown:
        return ""
    evicted = len(set(before.kept) - set(moment.kept))
    taken = sum(len(share.blocks) for share in moment.shares.values())
    free = BLOCKS - len(moment.kept) - taken
    if evicted:
        lost = f"{count(evicted, 'block')} that only the tree held {'are' if evicted > 1 else 'is'}"
        return f"{_needs(grown)}: {lost} evicted for it."
    return f"{_needs(grown)}. {count(free, 'block') if free else 'None'} of {BLOCKS} left."


def _preempted(before: Moment, moment: Moment, grown: dict[str, Share]) -> str:
    if not moment.step.preempted:
        return ""
    names = listed(moment.step.preempted)
    lost = sum(len(before.shares[name].blocks) for name in moment.step.preempted)
    if moment.out:
        way = f"{count(moment.out, 'block')} are copied to the host pool"
    else:
        way = f"the {lost} blocks are given up"
    kept = len(moment.kept)
    stay = f" The tree still holds {kept} of them, until their room is needed." if kept else ""
    last = ", who came last" if moment.step.preempted == {max(before.shares)} else ""
    return f"{_needs(grown)}, and none is free. {names} goes{last}: {way}.{stay}"


def _nth(number: int) -> str:
    words = {4: "fourth", 5: "fifth", 6: "sixth", 7: "seventh"}
    return words.get(number, f"{number}th")


def _back(name: str, moments: list[Moment], now: int) -> str:
    share = moments[now].shares[name]
    if moments[now].back:
        here = len(share.blocks) - moments[now].back
        still = f"; {count(here, 'block')} was still in the pool" if here else ""
        return (
            f"{name} comes back: {moments[now].back} blocks are copied from the host pool{still}. "
            f"It computes {count(share.num_tokens, 'token')}, as if it had never been away."
        )
    return (
        f"{name} comes back and finds {share.start} of its {share.known} tokens in the tree. "
        f"It computes the other {share.num_tokens}, all but the last for the second time."
    )
