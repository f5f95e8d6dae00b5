"""What became of heads that should have been turned, and of rows that should have been stored."""

from collections.abc import Iterator

import torch
from torch import Tensor

from grader.kit import kernels
from grader.kit.kernels import TOLERANCE
from grader.suites.triton_ops.launches import NOTHING, SLOTS

MOST_TURNS = 4
MASKED = "A tile has a power of two of heads: those that a token does not have must be masked."
TURNED = "Keys are stored turned, at the position of their token; values are not turned."


def told_of_turns(
    name: str, got: Tensor, x: Tensor, why: str, positions: Tensor, *tables: Tensor
) -> str:
    """Of the first head of `got` [T, heads, d] that is wrong: how often it was turned, or by what.

    x: before. why: the check's own words. "" if all are right, or nothing fits.
    """
    right = kernels.rope(x, positions, *tables)
    wrong = ~_alike(got, right).all(dim=2)
    if not wrong.any():
        return ""
    if _in_turn(got, x, positions, *tables):
        shown = ", ".join(
            f"token {token}, which stands at {position}, by those of {token}"
            for token, position in enumerate(positions.tolist()[:MOST_TURNS])
            if token != position
        )
        return (
            f"Each token was turned by the angles of its place in the batch: {shown}. {why}".strip()
        )
    token, head = wrong.nonzero()[0].tolist()
    row, was = got[token, head], x[token, head]
    count = f"{int(wrong.sum())} of {wrong.numel()} heads of {name} are wrong."
    for words, turned in _turned(was, positions, token, *tables):
        if bool(_alike(row, turned).all()):
            # A lane that no mask hides would have left its tensor, and is caught there.
            return (
                f"{count} Head {head} of token {token} {words}. {why.replace(MASKED, '').strip()}"
            )
    return ""


def _in_turn(got: Tensor, x: Tensor, positions: Tensor, *tables: Tensor) -> bool:
    """Whether tokens were turned by their number, whatever their position is."""
    numbers = torch.arange(len(positions))
    if (
        len(positions) > len(tables[0])
        or len(positions) < 2
        or torch.equal(numbers, positions.long())
    ):
        return False
    return bool(_alike(got, kernels.rope(x, numbers, *tables)).all())


def _turned(
    was: Tensor, positions: Tensor, token: int, *tables: Tensor
) -> Iterator[tuple[str, Tensor]]:
    """(words, the head) for each thing that may have happened to a head [d]."""
    position = int(positions[token])
    yield "was not turned", was.double()
    head = was.double()
    for times in range(1, MOST_TURNS + 1):
        head = _turn(head, position, *tables)
        if times > 1:
            yield f"was turned {times} times", head
    back = _turn(was.double(), position, tables[0], -tables[1])
    yield "was turned the other way", back
    for other in range(len(tables[0])):
        turned = _turn(was.double(), other, *tables)
        yield f"was turned by the angles of position {other}, and stands at {position}", turned


def _turn(head: Tensor, position: int, *tables: Tensor) -> Tensor:
    return kernels.rope(head[None, None], torch.tensor([position]), *tables)[0, 0]


def told_of_slots(
    name: str,
    got: Tensor,
    right: Tensor,
    was: Tensor,
    why: str,
    slots: list[int],
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    *tables: Tensor,
) -> str:
    """Of the first row [kv_heads, d] of a pool that is wrong: whose it is. was: the pool before. why:
    the check's own words. k, v: [T, kv_heads, d].

    "" if all are right, or nothing fits.
    """
    wrong = ~_alike(got, right).flatten(2).all(dim=2)
    if not wrong.any():
        return ""
    block, slot = wrong.nonzero()[0].tolist()
    row = got[block, slot]
    number = block * got.shape[1] + slot
    if left := _unwritten(row, right[block, slot], was[block, slot]):
        told = f"In slot {number} of {name} {left}: nothing was written there."
        return f"{told} {why.replace(MASKED, '').strip()}"
    turned = kernels.rope(k, positions, *tables)
    for words, rule, rows in (
        ("k of token {}, not turned", TURNED, k),
        ("v of token {}", SLOTS, v),
        ("k of token {}, turned", SLOTS, turned),
        ("k of token {}, turned twice", TURNED, kernels.rope(turned, positions, *tables)),
        ("v of token {}, turned", TURNED, kernels.rope(v, positions, *tables)),
    ):
        for token, values in enumerate(rows):
            if bool(_alike(row, values).all()):
                whose = f"{words.format(token)}, whose slot is {slots[token]}"
                return f"Slot {number} of {name} holds {whose}. {NOTHING if slots[token] < 0 else rule}"
    return ""


def _unwritten(row: Tensor, right: Tensor, was: Tensor) -> str:
    """Heads of a row [kv_heads, d] that are as before, if that is all that is wrong, and not all are."""
    wrong = ~_alike(row, right).all(dim=1)
    if bool(wrong.all()) or not bool(_alike(row, was).all(dim=1)[wrong].all()):
        return ""
    heads = [str(head) for head in wrong.nonzero().flatten().tolist()]
    verb = "s " + " and ".join(heads) + " are" if len(heads) > 1 else f" {heads[0]} is"
    return f"head{verb} as before"


def _alike(got: Tensor, exact: Tensor) -> Tensor:
    tolerance = TOLERANCE[got.dtype]
    return torch.isclose(got.double(), exact.double(), rtol=tolerance, atol=tolerance)
