"""What mistakes make of gathered logits and of the tokens that ranks choose together."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from grader.suites.tensor_parallel.bench import cut
from solutions import tensor_parallel as reference
from solutions.tensor_parallel.one_process import winners

NO_NOISE = "This is the token of the highest logit: no noise was added."
MINUS = "This is the token of the highest difference of logit and noise: the noise is added."
OWN_BEST = "This is the best token of rank {}'s own share."
OTHER_ROW = (
    "A row gives -1 if it has failed itself. This one is finite: it is another one that has failed."
)
PART_FAILED = (
    "A row gives -1 if it has failed as a whole. Here one rank's share is -inf, and that of another "
    "rank is not."
)
NARROW = torch.bfloat16, torch.float16, torch.float32


def why_gathered(got: Tensor, logits: Tensor, size: int, by_column: str, padded: str) -> str:
    """Whether parts lie one behind the other, or padding is among them; "" if neither is so. Logits are
    not 0, and no two of them are alike."""
    parts = [cut(logits, rank, size) for rank in range(size)]
    behind = torch.cat([part.flatten() for part in parts])
    if len(logits) > 1 and got.flatten().tolist() == behind.tolist():
        return by_column
    width = parts[0].shape[1]
    if got.ndim == 2 and got.shape[1] == width * size > logits.shape[1]:
        return padded
    real = set(logits.flatten().tolist())
    return padded if any(number not in real for number in got.flatten().tolist()) else ""


def why_best(
    got: Sequence[int], rank: int, logits: Tensor, size: int, sentences: dict[str, str]
) -> str:
    """How the first wrong token of an arg_max came about; "" if that is not known. sentences: whole (a
    token of the whole vocabulary), lowest, failed, exact, digits."""
    right = winners(logits)
    if len(got) != len(right) or not all(isinstance(token, int) for token in got):
        return ""
    wrong = [row for row, (one, other) in enumerate(zip(got, right, strict=True)) if one != other]
    if any(right[row] == -1 for row in wrong):
        return sentences["failed"]
    if lost := [row for row in wrong if got[row] == -1]:
        is_part = not bool(logits[lost].isfinite().all())
        return PART_FAILED if is_part else OTHER_ROW
    kinds: list[tuple[str, Callable[[int], object]]] = [
        ("lowest", lambda row: _logit(logits, row, got[row]) == logits[row, right[row]]),
        ("whole", lambda row: got[row] in _elsewhere(right[row], logits.shape[1], size)),
        ("exact", lambda row: got[row] in _rounded(right[row], logits.shape[1], size)),
        ("digits", lambda row: any(
            _logit(logits.to(dtype), row, got[row]) == logits.to(dtype)[row, right[row]]
            for dtype in NARROW
        )),
    ]  # fmt: skip
    found = [sentences[name] for name, fits in kinds if all(fits(row) for row in wrong)]
    own, first = cut(logits, rank, size), reference.share(logits.shape[1], rank, size).start
    if found[:1] == [sentences["lowest"]]:
        row = wrong[0]
        tied = f"In row {row} tokens {right[row]} and {got[row]} both have {logits[row, right[row]]:g}."
        return f"{tied} {found[0]}"
    if size > 1 and all(got[row] == first + int(own[row].argmax()) for row in wrong):
        found.append(OWN_BEST.format(rank))
    return found[0] if len(found) == 1 else ""


def _logit(logits: Tensor, row: int, token: int) -> Any:
    return logits[row, token] if 0 <= token < logits.shape[1] else None


def _elsewhere(token: int, vocab: int, size: int) -> set[int]:
    """What a token is without the start of its share, or with another one."""
    shares = [reference.share(vocab, rank, size) for rank in range(size)]
    rank = next(rank for rank, held in enumerate(shares) if token in held)
    place, held = token - shares[rank].start, len(shares[rank])
    return {
        place,
        place + rank * held,
        place + rank * (vocab // size),
        place + rank * len(shares[0]),
    }


def _rounded(token: int, vocab: int, size: int) -> set[int]:
    """What narrow dtypes make of a token, or of its place in its share."""
    starts = [reference.share(vocab, rank, size) for rank in range(size)]
    start = next(held.start for held in starts if token in held)
    wholes = {int(torch.tensor(token).to(dtype)) for dtype in NARROW}
    return wholes | {start + int(torch.tensor(token - start).to(dtype)) for dtype in NARROW} - {
        token
    }


class Asked:
    """Noise that knows which tokens it was asked for."""

    def __init__(self, noise: Callable[[range], Tensor]) -> None:
        self.noise = noise
        self.tokens: list[range] = []

    def of(self, tokens: range) -> Tensor:
        self.tokens.append(tokens)
        return self.noise(tokens)

    def draw(self, vocab: Any, mine: Tensor) -> Tensor:
        result: Tensor = vocab.draw(mine, self.of)
        return result


def why_drawn(got: Sequence[int], logits: Tensor, asked: Asked, size: int, own: str) -> str:
    """How drawn tokens came about; "" if that is not known. own: on the tokens to ask for noise of."""
    vocab, noise = logits.shape[1], asked.noise
    if list(got) == winners(logits):
        return NO_NOISE
    if not asked.tokens:
        return f"`noise` was not asked. {own}"
    wanted = {reference.share(vocab, rank, size) for rank in range(size)}
    if set(asked.tokens) != wanted:
        ranges = ", ".join(sorted(f"{each.start} to {each.stop - 1}" for each in asked.tokens))
        return f"{own} Here the noise of {ranges} was asked for."
    return MINUS if list(got) == winners(logits - noise(range(vocab))) else ""
