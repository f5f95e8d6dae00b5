"""Lab 17's reference where the engine runs it; its grader has the rules of graphs."""

from solutions.cuda_graphs import padded_sizes


def test_sizes_hold_every_step_and_waste_at_most_seven_rows() -> None:
    for largest in (1, 2, 3, 7, 8, 9, 256, 300):
        sizes = padded_sizes(largest)
        assert sizes == sorted(set(sizes))
        assert sizes[-1] == largest
        for rows in range(1, largest + 1):
            assert min(size for size in sizes if size >= rows) - rows < 8
    assert padded_sizes(20) == [1, 2, 4, 8, 16, 20]
