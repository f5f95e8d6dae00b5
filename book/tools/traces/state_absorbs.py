"""Two texts that begin alike, token by token into a matrix, with copies of it after some blocks.

The matrix is that of the part's delta rule; from where the second text goes on, its checkpoints say.
"""

from typing import Any

from book.tools.traces import Part, Trace
from yaie.core.params import SamplingParams
from yaie.core.request import Request, RequestStatus

LAB = "state_cache"
BLOCK, EVERY = 2, 2
"""Tokens of a block, and blocks from one copy to the next."""
DECAY = 0.9
# Keys have length 1. That of "the" is at right angles to all others; the rest share directions.
KEYS = {
    "the": [1, 0, 0, 0],
    "cat": [0, 1, 0, 0],
    "saw": [0, 0, 1, 0],
    "dog": [0, 0.8, 0, 0.6],
    "and": [0, 0, 0.6, 0.8],
    "ran": [0, 0, 0.8, -0.6],
    "off": [0, 0.6, 0.8, 0],
    "sat": [0, 0, 0.8, 0.6],
    "it": [0, 0.6, -0.8, 0],
}
ALIKE = [
    ("the", [6, 0, 2, 0]),
    ("cat", [0, 5, 0, -3]),
    ("saw", [2, 2, 6, 0]),
    ("the", [0, 4, 0, 4]),
    ("dog", [5, 0, 0, 4]),
    ("and", [-2, 0, 3, 0]),
]
ONE = [("the", [0, -4, 0, 6]), ("dog", [0, 6, 2, 0]), ("ran", [4, 0, 4, 0]), ("off", [0, 3, 0, 5])]
TWO = [("sat", [3, 0, 0, 4]), ("and", [0, 4, -2, 0]), ("saw", [5, 0, 2, 2]), ("it", [0, 2, 6, 0])]


def record(part: Part) -> Trace:
    """Two tracks; each has its tokens, and a step for each of them after the first."""
    memory = Memory(part("state_cache"))
    one: dict[str, Any] = {"label": "one text", "tokens": _tokens(ALIKE + ONE)}
    one["steps"] = memory.text(one["tokens"], 0)
    two: dict[str, Any] = {
        "label": "a second text, with the same first six tokens",
        "shared": len(ALIKE),
        "tokens": _tokens(ALIKE + TWO),
    }
    two["steps"] = memory.text(two["tokens"], len(ALIKE))
    return {"tracks_label": "Text", "tracks": {"one": one, "two": two}}


def _tokens(text: list[tuple[str, list[int]]]) -> list[dict[str, Any]]:
    return [{"word": word, "k": KEYS[word], "v": value} for word, value in text]


class Memory:
    """The part at work: one slot for the running text, and copies by the block that they follow."""

    def __init__(self, package: Any) -> None:
        self._package = package
        self._checkpoints = package.Checkpoints(0, 8)
        self._kept: dict[int, Any] = {}  # by slot

    def text(self, tokens: list[dict[str, Any]], shared: int) -> list[dict[str, Any]]:
        """The steps of a text whose first `shared` tokens are those of the text before it."""
        import torch

        there = list(range(shared // BLOCK))  # blocks of the tree, by their place in the first text
        cached, resumed = len(there) * BLOCK, self._checkpoints.depth(there) * BLOCK
        state = torch.zeros(1, 1, 4, 4, dtype=torch.float64)
        if resumed:
            state = self._kept[self._checkpoints.use(there[resumed // BLOCK - 1])].clone()
        blocks = [at if at < resumed // BLOCK else 100 * shared + at for at in range(len(tokens))]
        copies = {n: self._kept[self._checkpoints.use(blocks[n // BLOCK - 1])] for n in range(
            BLOCK * EVERY, resumed + 1, BLOCK * EVERY)}  # fmt: skip
        request = Request(str(shared), list(range(len(tokens) + 1)), SamplingParams(), max_tokens=1)
        request.status = RequestStatus.RUNNING
        steps = [self._step(tokens, resumed, state, copies, cached, resumed)]
        for at in range(resumed, len(tokens)):
            token = tokens[at]
            found = self._with(state, token["k"], fade=DECAY)[0]
            _, state = self._with(state, token["k"], token["v"], fade=DECAY)
            count = at + 1
            if count % (BLOCK * EVERY) == 0:
                depth = count // BLOCK
                slot = self._checkpoints.save(request, blocks[depth - 1], depth)
                if slot is not None:
                    self._kept[slot] = copies[count] = state.clone()
                    self._checkpoints.file(blocks[:depth], blocks[:depth])
            steps.append(self._step(tokens, count, state, copies, cached, resumed, found))
        return steps

    def _with(
        self, state: Any, key: list[float], value: list[float] | None = None, fade: float = 1.0
    ) -> tuple[Any, Any]:
        """(what the key reads, the state after it) of one token. value: written; None: nothing is."""
        import torch

        k = torch.tensor(key, dtype=torch.float64).view(1, 1, 4)
        v = torch.tensor(value or [0.0] * 4, dtype=torch.float64).view(1, 1, 4)
        decay = torch.tensor([[fade]], dtype=torch.float64).log()
        beta = torch.tensor([[0.0 if value is None else 1.0]], dtype=torch.float64)
        out, after = self._package.delta_step(k, k, v, decay, beta, state.clone())
        return out[0, 0], after

    def _step(
        self,
        tokens: list[dict[str, Any]],
        count: int,
        state: Any,
        copies: dict[int, Any],
        cached: int,
        resumed: int,
        found: Any = None,
    ) -> dict[str, Any]:
        read = _short(self._with(state, tokens[0]["k"])[0])
        token = tokens[count - 1] if found is not None else None
        step = {
            "count": count,
            "cached": cached,
            "resumed": resumed,
            "matrix": [_short(row) for row in state[0, 0]],
            "kept": [
                {"count": n, "matrix": [_short(row) for row in one[0, 0]]}
                for n, one in copies.items()
            ],
            "found": None if found is None else _short(found),
            "written": None
            if token is None
            else _short([v - f for v, f in zip(token["v"], found, strict=True)]),
        }
        return {"say": _say(step, tokens, token, read), "place": _counted(count, "token"), **step}


def _short(values: Any) -> list[float]:
    return [round(float(value), 5) + 0.0 for value in values]


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _vector(values: list[float]) -> str:
    """Numbers with one digit after the point, if they are not whole."""
    shown = [f"{value:.1f}".removesuffix(".0").replace("-", "−") for value in values]
    return f"({', '.join('0' if one == '−0' else one for one in shown)})"


def _say(step: dict[str, Any], tokens: Any, token: Any, read: list[float]) -> str:
    count, cached, resumed, kept = (step[name] for name in ("count", "cached", "resumed", "kept"))
    if token is None and not cached:
        return "The cache is empty, and the matrix is zero."
    if token is None:
        return (
            f"Keys and values of the first {cached} tokens are there, in {cached // BLOCK} blocks. "
            f"The last copy of the matrix is after {resumed}: the text goes on from there, and "
            f"{_counted(cached - resumed, 'token')} must be computed again."
        )
    word, first = token["word"], tokens[0]["word"]
    again = f"Computed again, though its keys are there: “{word}”. " if count <= cached else ""
    taken = f" A copy is kept after token {count}." if kept and kept[-1]["count"] == count else ""
    copies = {0: "", 1: ", 16 in its copy"}.get(
        len(kept), f", {16 * len(kept)} in {len(kept)} copies"
    )
    return (
        f"{again}The key of “{word}” reads {_vector(step['found'])}; what is missing from "
        f"{_vector(token['v'])} is written. Now “{first}” reads {_vector(read)}.{taken} Numbers kept: "
        f"{8 * max(count, cached)} in the cache, 16 in the matrix{copies}."
    )
