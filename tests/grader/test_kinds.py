"""A message does not speak of another kind of mistake than the one that was made."""

import pytest

from grader.report.kinds import KINDS, OF_KERNELS, OF_STATE, complaint, foreign_kinds, kinds_of
from grader.selfcheck.variants import known_wrong
from grader.verdict import Explanation
from yaie.curriculum.manifest import load_curriculum

TAIL = (
    "The last tile of a row or of a grid reaches past the end wherever a size is no multiple of the "
    "tile: lanes out there need a mask."
)
OUT_OF_BOUNDS = (
    "It reads offset 16 of x, which is no element of it: it lies 1 behind element [0, 1, 7] "
    "(strides [48, 8, 1], shape [3, 2, 8])."
)
BOTH = (
    "A lane past the end that is not masked gets here, and so does an index times a stride that is not "
    "this tensor's. Without a mask only the last tile goes wrong; with another stride every index but 0 "
    "does, or nearly."
)
WIDE = (
    "The offset of number 2 is 2**31 and no int32, in which it becomes negative: widen what is loaded "
    "with .to(tl.int64) before they meet a stride."
)
ROUNDED = "The normed value is rounded to the input's dtype before the weight, as in lab 2."
LOCKED = "A block that a running request reads must not be handed to another."

# As recorded: mistake, misconception, what the check said, its advice, the kinds it must not name.
RECORDED = [
    ("norm_one_stride", "A row is its number times the head's stride, as if tokens had no gaps.",
     OUT_OF_BOUNDS, TAIL, ["mask"]),
    ("norm_one_stride", "A row is its number times the head's stride, as if tokens had no gaps.",
     OUT_OF_BOUNDS, BOTH, []),
    ("norm_one_stride", "A row is its number times the head's stride, as if tokens had no gaps.",
     "the norm of a view: 32 of 48 values differ", "Two strides lead to a row.", []),
    ("norm_tail_is_not_masked", "The tile's lanes past the row's end are loaded and counted.",
     OUT_OF_BOUNDS, TAIL, []),
    ("store_slot_in_int32", "A slot is a small number.",
     "It writes element -2147483512 of keys", WIDE, []),
    ("store_slot_in_int32", "A slot is a small number.",
     "It writes element -2147483512 of keys", "An index below 0 is padding.", ["padding"]),
    ("norm_rounds_at_the_end_only", "The normed value meets the weight before it is rounded.",
     "only 61% of the values are those of lab 2", ROUNDED, []),
    ("store_takes_rows_to_be_dense", "Rows of k are taken to lie one after the other.",
     "keys afterwards: 12 of 16 values differ", ROUNDED, ["rounding"]),
    ("sum_without_a_barrier", "The partial sums are read without waiting for the warps that write them.",
     "a race", "Two barriers a call: before reading, and before the next writes.", []),
    ("silu_gate_is_the_second_half", "The second half of x is taken for the gate.",
     OUT_OF_BOUNDS, TAIL, []),  # of no kind in the table: nothing is known of it
]  # fmt: skip


@pytest.mark.parametrize(("name", "misconception", "problem", "advice", "foreign"), RECORDED)
def test_a_recorded_message_of_a_kernel(name, misconception, problem, advice, foreign):
    why = Explanation("A claim that speaks of masks and strides.", problem, why=advice)
    said = complaint(name, (), misconception, "", why, is_kernel=True)
    assert bool(said) is bool(foreign), said
    assert all(kind in said for kind in foreign)


def test_a_message_about_state_that_speaks_of_another_mistake():
    why = Explanation("c", "free host blocks: not as expected", why="A locked path is not evicted.")
    told = complaint("blocks_stay", ("leak",), "Blocks stay.", "", why, is_kernel=False)
    assert "of the kind leak, but its message speaks of lock" in told
    why = Explanation("c", "what goes: not as expected", why=LOCKED)
    assert not complaint(
        "locked_leaf_evicted", (), "A locked leaf is evicted.", "", why, is_kernel=False
    )


def test_both_kinds_may_be_named_if_something_tells_them_apart():
    own = {"stride"}
    assert foreign_kinds(own, "A stride, or a mask.", is_kernel=True) == []
    assert foreign_kinds(own, "Strides count. Masks count.", is_kernel=True) == ["mask"]
    assert foreign_kinds(own, "A mask, or nothing.", is_kernel=True) == ["mask"]


def test_what_a_file_says_of_its_kind_counts_alone():
    assert kinds_of(["stride"], "The mask is missing.", is_kernel=True) == {"stride"}
    assert kinds_of([], "The mask is missing.", is_kernel=True) == {"mask"}
    assert kinds_of([], "The mask is missing.", is_kernel=False) == frozenset()


def test_a_kind_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="no kind 'strides' of mistakes; choose from mask,"):
        kinds_of(["strides"], "", is_kernel=True)


def test_most_known_mistakes_of_memory_and_kernels_are_of_a_kind():
    """Or the table would be an ornament: of those of no kind nothing is checked."""
    for key in ("paged_cache", "radix_tree", "triton_ops", "cuda_memory_ops"):
        lab = load_curriculum()[key]
        of_a_kind = [
            wrong.name
            for wrong in known_wrong(lab)
            if kinds_of(
                (),
                f"{wrong.name.replace('_', ' ')}: {wrong.misconception}",
                wrong.says,
                is_kernel=lab.is_kernel,
            )
        ]
        assert len(of_a_kind) >= len(known_wrong(lab)) / 2, key


def test_the_families_have_no_kind_in_common():
    assert len(KINDS) == len(OF_KERNELS) + len(OF_STATE)
