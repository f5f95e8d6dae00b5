"""What is said of a kernel that reads outside, or that divides by a mask's size where there is none."""

import math
import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from grader.kit.axes import forget_launches
from grader.kit.expect import Fault
from grader.kit.triton_watch import Seen

HELD = {
    "10.1": "A program holds a tile of queries: the grid counts the queries by tiles.queries, rounded "
    "up, then query heads, then sequences.",
    "10.5": "A program holds a tile of keys: the grid counts the keys by tiles.keys, rounded up, then "
    "key heads, then sequences.",
    "10.6": "A program holds a tile of queries: the grid counts the queries by tiles.queries, rounded "
    "up, then query heads, then sequences.",
}
HEADS_WHY = "k and v have fewer heads than q: query head h reads key head h // group."
MASK_WHY = (
    "block_mask has a row for each mask_block queries and a column for each mask_block keys, from "
    "query 0 and key 0 on: a pair's entry is [query // mask_block, key // mask_block]."
)
HOLDERS = ("forward_kernel", "key_kernel", "query_kernel")


@contextmanager
def told_faults(grades: str, given: Any) -> Iterator[list[Seen]]:
    """A tile loaded by another tensor's stride is about strides, whichever test it is seen in.

    A program past the end of a padded tensor is told with the tensor's strides too, and is not. given: a
    `Problem`. Gives a list, for what is seen of its kernels.
    """
    watched: list[Seen] = []
    try:
        yield watched
    except Fault as fault:
        if grid := next((told for seen in watched if (told := _told_grid(seen, given))), ""):
            # With two axes exchanged a test may pass: what is too much of one is masked on the other.
            forget_launches()
            fault.problem, fault.why = f"{grid}. {fault.problem}", HELD[grades]
        elif "of block_mask" in fault.problem:
            fault.why = MASK_WHY
        elif grades == "10.3" and (" of k, " in fault.problem or " of v, " in fault.problem):
            fault.why = _heads_why(fault, given)
        if "'s strides are" in fault.problem or "no element of it" in fault.problem:
            fault.claim = "Each tile is loaded and stored by the strides of its own tensor."
        raise
    except ZeroDivisionError as error:
        names = [name for _, _, name in lines_of(error)]
        if given.block_mask is not None or "is_kept" not in names:
            raise
        unmasked = Fault(
            "is_kept is asked where there is no block mask: MASK_BLOCK is 0, and it divides by it",
            why="Ask for a tile's entry inside of `if MASK_BLOCK:` only.",
        )
        unmasked.frames = [line for line in lines_of(error) if line[2] != "is_kept"]
        raise unmasked from None


def lines_of(error: BaseException) -> list[tuple[str, int, str]]:
    """(file, line, function) that an error has passed through: first of the errors that the interpreter
    has wrapped it in, the innermost first, which are those of the kernel."""
    found: list[tuple[str, int, str]] = []
    one = error.__context__
    while one is not None and one is not error:
        found += _steps(one)
        one = one.__cause__
    return [*reversed(found), *reversed(_steps(error))]


def _steps(error: BaseException) -> list[tuple[str, int, str]]:
    steps = traceback.walk_tb(error.__traceback__)
    return [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in steps]


def _told_grid(seen: Seen, given: Any) -> str:
    """A grid of another size than the kernels' programs, tile, head and sequence, have."""
    n, tq, heads, _ = given.q.shape
    _, tk, kv_heads, _ = given.k.shape
    for launch in seen.launches:
        if launch.kernel in HOLDERS and {"BLOCK_M", "BLOCK_N"} <= launch.arguments.keys():
            over_keys = launch.kernel == "key_kernel"
            length, block, of = (tk, "BLOCK_N", kv_heads) if over_keys else (tq, "BLOCK_M", heads)
            size = int(launch.arguments[block])
            right = (-(-length // size), of, n)
            if math.prod(right) != launch.programs:
                parts = f"{length} {'keys' if over_keys else 'queries'} in tiles of {size}, "
                parts += f"{of} {'key ' * over_keys}heads and {n} sequences"
                return (
                    f"The grid of {launch.kernel} is {list(launch.grid)}: {parts} are {list(right)}"
                )
    return ""


def _heads_why(fault: Fault, given: Any) -> str:
    """With the numbers of the program that reads outside, where its kernel has them."""
    head, key_head = (re.search(rf"\b{name} = (\d+)", fault.state) for name in ("head", "key_head"))
    if head is None or key_head is None:
        return HEADS_WHY
    of, group = int(head[1]), given.q.shape[2] // given.k.shape[2]
    if int(key_head[1]) == of // group:
        return HEADS_WHY
    return (
        f"Query head {of} reads key head {key_head[1]} here. With {given.q.shape[2]} heads on "
        f"{given.k.shape[2]} it is head // group: {of} // {group} = {of // group}."
    )
