"""Lab 17's reference where the engine runs it; its grader has the rules of graphs."""

import numpy as np
import pytest

from solutions.cuda_graphs import idle, num_uploaded, padded_sizes, parts_of, size_of
from yaie.core.contracts.graphs import Size
from yaie.core.step import StepInput


def test_sizes_hold_every_step_and_waste_at_most_seven_rows() -> None:
    for largest in (1, 2, 3, 7, 8, 9, 256, 300):
        sizes = padded_sizes(largest)
        assert sizes == sorted(set(sizes))
        assert sizes[-1] == largest
        for rows in range(1, largest + 1):
            assert min(size for size in sizes if size >= rows) - rows < 8
    assert padded_sizes(20) == [1, 2, 4, 8, 16, 20]


@pytest.mark.parametrize("size", [Size(1), Size(3), Size(8), Size(0, 5, 2), Size(3, 9, 4)])
def test_parts_begin_at_16_bytes_and_share_nothing(size: Size) -> None:
    memory = np.zeros(num_uploaded(size) + 3, dtype=np.int32)
    parts = parts_of(memory, size)
    for number, part in enumerate(parts, 1):
        assert (part.ctypes.data - memory.ctypes.data) % 16 == 0
        part += number
    counts = [int((memory == number).sum()) for number in range(1, len(parts) + 1)]
    rows, seqs = size.rows, size.sequences
    sent = rows if size.chunks else 0
    assert counts == [sent, rows, rows, seqs, seqs, seqs + 1, rows, rows, rows]
    assert not memory[num_uploaded(size) :].any()


def test_a_step_of_padding_has_no_queries_of_chunks_and_nobodys_seats() -> None:
    parts = parts_of(idle(Size(2, 4, 3), 9), Size(2, 4, 3))
    assert parts.begins.tolist() == [0, 1, 2, 2, 2, 2]
    assert parts.seats.tolist() == [9] * 5
    assert parts.table_seats.tolist() == [9] * 6
    assert parts.slots.tolist() == [-1] * 6
    assert not np.concatenate((parts.token_ids, parts.positions, parts.kv_lens)).any()


def test_what_a_step_needs_and_where_its_tokens_stand() -> None:
    seats, samples = np.arange(3, dtype=np.int32), np.ones(3, np.bool_)
    starts = np.array([7, 0, 4], np.int32)
    step = StepInput(1, seats, starts, np.array([1, 3, 2], np.int32), samples)
    assert size_of(step) == Size(1, 5, 2)
    assert step.positions.tolist() == [7, 0, 1, 2, 4, 5]
    step = StepInput(1, seats, starts, np.ones(3, np.int32), samples)
    assert size_of(step) == Size(3)
    assert step.positions.tolist() == [7, 0, 4]
    step = StepInput(1, seats[:2], starts[:2], np.array([2, 2], np.int32), samples[:2])
    assert size_of(step) == Size(0, 4, 2)
