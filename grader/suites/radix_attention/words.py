"""Lists of sequences, rows and slots in few words, and how two lists of slots differ."""

from collections.abc import Iterable, Sequence
from itertools import groupby

import torch
from torch import Tensor

MOST_SHOWN = 12
"""Of a list that has no runs."""
MOST_PLAIN = 6
"""Numbers that are shown one by one though they are equal."""


def spans(numbers: Iterable[int]) -> str:
    """0 to 5, 8 and 9"""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    texts: list[str] = []
    for first, last in runs:
        texts += [f"{first} to {last}"] if last > first + 1 else map(str, range(first, last + 1))
    if len(texts) > MOST_SHOWN:
        texts[MOST_SHOWN - 1 :] = [f"... {runs[-1][1]}"]
    return " and ".join(filter(None, (", ".join(texts[:-1]), *texts[-1:])))


def in_order(numbers: Sequence[int]) -> str:
    """0, 2, 1; a long list without gaps as 0 to 299"""
    if len(numbers) > MOST_SHOWN:
        is_run = list(numbers) == list(range(numbers[0], numbers[0] + len(numbers)))
        return spans(numbers) if is_run else f"{', '.join(map(str, numbers[:MOST_SHOWN]))}, ..."
    return ", ".join(map(str, numbers))


def repeated(numbers: Sequence[int]) -> str:
    """A list as Python that is short where numbers repeat: [8] * 20 + [400] + [8] * 19."""
    runs = [(value, len(list(run))) for value, run in groupby(numbers)]
    if len(numbers) <= MOST_PLAIN or len(runs) > len(numbers) / 2:
        return str(list(numbers))
    return " + ".join(f"[{value}]" + f" * {count}" * (count > 1) for value, count in runs)


def blocks(table: Sequence[int]) -> str:
    """A block table; a long one of neighbours by its ends."""
    step = table[1] - table[0] if len(table) > MOST_SHOWN else 0
    if abs(step) == 1 and list(table) == list(range(table[0], table[-1] + step, step)):
        return f"[{table[0]}, {table[1]}, ..., {table[-1]}]"
    return str(list(table))


def slots_apart(own: Tensor, right: Tensor, kv_lens: list[int], members: list[int],
                width: int, size: int) -> list[str]:  # fmt: skip
    """How the unused slots of a group differ from the right ones, in sentences.

    members: the sequence of each row. width: the slots of a row.
    """
    given = own.flatten().tolist()
    known, wanted = set(given), set(right.tolist())
    missing, more = wanted - known, known - wanted
    count = len(members) * width
    told = []
    if missing:
        told.append(f"Missing: {_of_rows(missing, members, width)}.")
    if inside := {slot for slot in more if 0 <= slot < count}:
        told.append(f"These hold keys: {_of_rows(inside, members, width)}.")
    if outside := more - inside:
        told.append(f"Only {count} slots are gathered: {spans(outside)} are none of them.")
    if cause := _cause_of(sorted(given), missing, more, kv_lens, width, size):
        told.append(cause)
    return told


def _of_rows(slots: set[int], members: list[int], width: int) -> str:
    """slots 3 to 7 of row 1 (sequence 2)"""
    rows: dict[int, list[int]] = {}
    for slot in sorted(slots):
        rows.setdefault(slot // width, []).append(slot % width)
    alike: dict[tuple[int, ...], list[int]] = {}
    for row, columns in rows.items():
        alike.setdefault(tuple(columns), []).append(row)
    texts = []
    for where, which in alike.items():
        name = "slot" if len(where) == 1 else "slots"
        of = f"row {which[0]} (sequence {members[which[0]]})"
        if len(which) > 1:
            of = f"rows {spans(which)}"
        texts.append(f"{name} {spans(where)} of {of}")
    return "; ".join(texts)


def _cause_of(given: list[int], missing: set[int], more: set[int], kv_lens: list[int],
              width: int, size: int) -> str:  # fmt: skip
    """What gives just these slots."""
    lens = torch.tensor(kv_lens)[:, None]
    columns = torch.arange(min(kv_lens), width)
    rows = torch.arange(len(kv_lens))[:, None]

    def is_given(rows: Tensor, columns: Tensor) -> bool:
        found = (rows * width + columns)[columns >= lens]
        return sorted(found.tolist()) == given

    if not more and missing == _behind_the_last_block(kv_lens, width, size):
        return (
            "So a row ends with the sequence's own last block. Rows are padded to the longest: what is "
            "gathered for the padding holds no key of the sequence either."
        )
    for kind, bits in ((torch.uint8, 8), (torch.int8, 8), (torch.int16, 16)):
        if is_given(rows.to(kind).long(), columns):
            last = torch.iinfo(kind).max
            return (
                f"These are the slots for a row index of {bits} bits: behind row {last} comes row "
                f"{int(torch.tensor(last + 1).to(kind))}."
            )
        if is_given(rows, columns.to(kind).long()):
            last = torch.iinfo(kind).max
            return f"These are the slots for columns of {bits} bits, whose largest is {last:,}."
    return ""


def _behind_the_last_block(kv_lens: list[int], width: int, size: int) -> set[int]:
    return {
        row * width + column
        for row, keys in enumerate(kv_lens)
        for column in range(-(-keys // size) * size, width)
    }
