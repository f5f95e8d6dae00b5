"""What a call's kernels did to memory, and what they may do: shared by the suites of labs 13 to 16.

work = work_of(lambda: kernels.store_kv(...))     everything that was launched, added up
expect_whole_sectors(work, what)                  coalesced: warps use the sectors that they touch
expect_wide(work, bytes, what)                    16 bytes with each store
expect_read_once(work, bytes, extra, what)        nothing is loaded a second time
expect_many_threads(work, bytes, what)            the work is spread over threads and blocks
expect_grid_fits(launches_of(..), pieces, what)   a thread for each piece of work, or nearly
expect_whole_warps(launches_of(..), what)         a block's threads fill its warps
expect_within_bounds(launches_of(..), {..}, what) blocks are no larger than __launch_bounds__ says
expect_no_wrap(call, unchanged, where)            offsets are computed in 64 bits
expect_errors_returned(call, what)                a launcher returns what launch() returned
count_beyond_grid(call, most)                     how much work a grid needs a loop for, if it does
with blamed("misaligned", why): ...               why this fault, should it happen, happens here
told_grid(launches)                               "a grid of 1 x 8 x 1 blocks of 256 threads"
left_over(launches, first, "pairs")               why pieces from number `first` on were left out
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from grader.kit.cuda_watch import watching
from grader.kit.expect import Mismatch, expect
from grader.kit.script import note, off_the_record
from yaie.core.errors import KernelError
from yaie.cuda.on_cpu import KernelFault, Launch, Traffic, recording, settings

COALESCED = (
    "Memory is moved in sectors of 32 bytes, for a whole warp at once: 32 threads whose addresses are "
    "neighbours fill every sector that they touch."
)
PACKED = (
    "Addresses and sizes here are multiples of 16 bytes. A thread that moves 2 bytes at a time needs "
    "eight instructions for what one can do, and keeps an eighth of the bytes on their way."
)
KEPT = (
    "What is needed twice, for a sum and then for the result, stays on the chip in between, in "
    "registers or in shared memory: loads from global memory are what takes the time."
)
SHARED_WORK = (
    "A GPU hides the time of a load behind thousands of others, on all of its multiprocessors: a thread "
    "that makes many loads in turn waits for each of its own."
)
ONE_BLOCK = (
    "A GPU hides the time of a load behind thousands of others, on all of its multiprocessors: one "
    "block of threads that does everything has one of them."
)
IDLE = (
    "A thread that finds nothing to do takes its place on the device all the same. What the launcher "
    "counts must be what the kernel counts: where a thread moves 16 bytes at a time, the grid and the "
    "block go by these pieces, not by numbers or bytes."
)
WHOLE_WARPS = (
    "A block is cut into warps of 32 threads, and the last of them takes a whole warp's place, however "
    "few lanes it has."
)
BOUNDS = (
    "__launch_bounds__ promises the compiler that no block has more threads; registers are given out "
    "accordingly, and a GPU refuses a launch that breaks the promise."
)
IN_64_BITS = (
    "{} passes 2**31: make it int64_t first. Neither the number nor the product, nor a variable that "
    "takes it, may be an int."
)
CUT_PRODUCT = (
    "With {0}, a number that fits into an int, it wraps too: it is a product with it that passes 2**31. "
    "Make a factor int64_t first; a variable that takes the product may be no int either."
)
CUT_NUMBER = (
    "With {0}, a number that fits into an int, it does not wrap: it is the number itself that an int "
    "holds here. Make it int64_t."
)
RETURNED = (
    "launch() returns 0 or an error of CUDA's: the grid is too large, or memory has run out. If the "
    "launcher returns it, the call raises. If it is dropped, nothing was done and all seems well."
)
Part = tuple[int, Callable[[int], object]]
MOST_WASTE = 1.3
FEWEST = 8


@dataclass(frozen=True, slots=True)
class Work:
    """threads, blocks: of all launches. barriers: of blocks. collectives: of warps. seen: launches."""

    launches: int
    threads: int
    blocks: int
    loads: Traffic
    stores: Traffic
    barriers: int
    collectives: int
    seen: Sequence[Launch] = ()

    def line_of(self, verb: str, cost: Callable[[Traffic], int]) -> str:
        """The line whose loads (or stores) cost most: "store.cu:19"; "" if no line is known."""
        lines = [
            line
            for launch in self.seen
            for line in launch.lines
            if line.kind == f"global {verb}" and line.file
        ]
        worst = max(lines, key=lambda line: cost(line.traffic), default=None)
        return f"{worst.file}:{worst.line}" if worst and cost(worst.traffic) > 0 else ""

    def spacing(self, verb: str, row: int = 0) -> str:
        """How far apart neighbouring threads' addresses are, where that is more than they take. row:
        bytes from one token's row to the next."""
        for launch in self.seen:
            for _, request in launch.requests_of(f"global {verb}"):
                steps = [
                    b - a for a, b in pairwise(request.addresses) if a is not None and b is not None
                ]
                step = steps[0] if len(steps) > 2 and len(set(steps)) == 1 else 0
                if step > request.size:
                    told = (
                        f"Here neighbouring threads {verb} {request.size} bytes each, {step:,} bytes "
                        "apart. "
                    )
                    if step != row:
                        return told
                    return (
                        f"{told}That is from one token's row to the next: in these blocks of "
                        f"{launch.block[0]} x {launch.block[1]} threads neighbours have different "
                        "tokens. Let x go along a row. "
                    )
        return ""


def work_of(call: Callable[[], object]) -> Work:
    with watching() as seen:
        call()
    expect(seen, "no kernel was launched")
    return Work(
        len(seen),
        sum(launch.threads * launch.blocks for launch in seen),
        sum(launch.blocks for launch in seen),
        _total(seen, "global_loads"),
        _total(seen, "global_stores"),
        sum(launch.barriers for launch in seen),
        sum(launch.collectives for launch in seen),
        tuple(seen),
    )


def _total(launches: list[Launch], kind: str) -> Traffic:
    return sum((getattr(launch, kind) for launch in launches), Traffic())


def expect_whole_sectors(work: Work, what: str, *, loads: bool = True, row: int = 0) -> None:
    """Warps use nearly all of the sectors that they touch. loads: count those, too. row: bytes from one
    token's row of the input to the next."""
    for verb, traffic in (("load", work.loads), ("store", work.stores))[not loads :]:
        if traffic.sectors > MOST_WASTE * traffic.ideal_sectors:
            line = work.line_of(verb, lambda each: each.sectors - each.ideal_sectors)
            raise Mismatch(
                f"{what}: its warps {verb} far apart, not side by side{_most(line)}",
                f"about {traffic.ideal_sectors} sectors of 32 bytes",
                f"{traffic.sectors}",
                work.spacing(verb, row) + COALESCED,
            )


def expect_wide(work: Work, writes: int, what: str) -> None:
    """`writes` bytes are stored, 16 with each store."""
    if work.stores.bytes != writes:
        why = "Each number of the result is written by one thread, once."
        line = work.line_of("store", lambda each: each.bytes)
        got = f"{work.stores.bytes}{_most(line)}"
        raise Mismatch(f"{what}: bytes stored", str(writes), got, why)
    if work.stores.count != writes // 16:
        line = work.line_of("store", lambda each: 16 * each.count - each.bytes)
        raise Mismatch(
            f"{what}: stores that threads execute{_most(line)}",
            f"{writes // 16}, of 16 bytes each",
            f"{work.stores.count}, of {work.stores.bytes / work.stores.count:g} on average",
            PACKED,
        )


def expect_read_once(work: Work, reads: int, extra: int, what: str) -> None:
    """At most `reads` bytes of input are loaded, and `extra` that every row may read again."""
    if work.loads.bytes > reads + extra:
        by_line = sorted(
            (line for launch in work.seen for line in launch.lines if line.kind == "global load"),
            key=lambda line: -line.traffic.bytes,
        )
        lines = ", ".join(
            f"{line.traffic.bytes:,} in {line.file}:{line.line}" for line in by_line[:3]
        )
        raise Mismatch(
            f"{what}: bytes loaded" + f" ({lines})" * bool(lines),
            f"at most {reads + extra}, of which {reads} are its input",
            str(work.loads.bytes),
            KEPT,
        )


def expect_many_threads(work: Work, moves: int, what: str) -> None:
    """No thread moves more than 128 bytes, and there is more than one block."""
    least = moves // 128
    if work.threads >= least and work.blocks > 1:
        return
    blocks = "1 block" if work.blocks == 1 else f"{work.blocks} blocks"
    few = f"at least {least:,} threads, one for 8 of {moves // 16:,} pieces of 16 bytes"
    raise Mismatch(
        f"{what}: threads",
        "more than one block" if work.threads >= least else few + ", in several blocks",
        f"{blocks} of {work.threads // work.blocks} threads",
        ONE_BLOCK if work.blocks == 1 else SHARED_WORK,
    )


def launches_of(call: Callable[[], object]) -> list[Launch]:
    """What a call launches. No kernel runs, so the shapes may be those of a large model."""
    with settings(dry=True), recording() as launches:
        call()
    expect(launches, "no kernel was launched")
    return launches


def expect_grid_fits(
    launches: list[Launch],
    pieces: int,
    what: str,
    *,
    most: int = 3,
    row: int = 0,
    parts: Mapping[str, Part] | None = None,
) -> None:
    """There are at most `most` threads for each of the pieces that one thread takes at a time, and no
    thread has to take more than eight of them.

    row: pieces of a row, where neighbouring threads share one. parts: what the work is divided into, and
    a call with fewer of them, as {"pairs": (64, lambda n: swap(n))}: a report says if it is these that
    the grid has too few blocks for."""
    threads = sum(launch.threads * launch.blocks for launch in launches)
    got = f"{threads:,}, as {told_grid(launches)}"
    if threads > most * pieces:
        expected = f"at most {most * pieces:,}, {most} for each of {pieces:,} pieces of work"
        raise Mismatch(
            f"{what}: threads",
            expected,
            got,
            _idle(launches, row) or _grown(launches, parts or {}) or IDLE,
        )
    if 8 * threads < pieces:
        expected = (
            f"at least {-(-pieces // 8):,}: there are {pieces:,} pieces of work, 8 for a thread"
        )
        is_one = sum(launch.blocks for launch in launches) == 1
        told = ONE_BLOCK if is_one else SHARED_WORK
        why = f"{_in_turn(launches, pieces, parts or {})}{told}"
        raise Mismatch(f"{what}: threads", expected, got, why)


def _idle(launches: Sequence[Launch], row: int) -> str:
    """Whether blocks are wider than a row's pieces, in whole warps."""
    across, along, _ = launches[0].block
    if not row or across <= -(-row // 32) * 32:
        return ""
    return (
        f"A row has {row} pieces of 16 bytes, and a block has {across} x {along} threads for it: "
        f"{across - row} of {across} find nothing to do. Let x have a row's pieces in whole warps, "
        "and y several tokens."
    )


def _grown(launches: Sequence[Launch], parts: Mapping[str, Part]) -> str:
    """Whether two axes of the grid grow with the number of the same parts, and so count them twice."""
    grid = launches[0].grid
    for name, (count, call) in parts.items():
        one = launches_of(lambda call=call: call(1))[0].grid  # type: ignore[misc]
        axes = [axis for axis in range(3) if grid[axis] > one[axis]]
        if len(axes) == 2 and all(grid[axis] == count * one[axis] for axis in axes):
            x, y = ("xyz"[axis] for axis in axes)
            return (
                f"With 1 of the {name} the grid is {' x '.join(map(str, one))}, and with {count} it is "
                f"{' x '.join(map(str, grid))}: {x} and {y} both grow with the number of {name}, which "
                f"is counted twice. Each of the {name} needs no more than {one[axes[0]]} blocks of "
                f"threads along {x}."
            )
    return ""


def _in_turn(launches: Sequence[Launch], pieces: int, parts: Mapping[str, Part]) -> str:
    """How many of its parts, or of the pieces of each, one thread takes in turn: the axis of the grid
    that grows with the number of parts is theirs."""
    grid, threads = launches[0].grid, launches[0].threads
    for name, (count, call) in parts.items():
        one = launches_of(lambda call=call: call(1))[0].grid  # type: ignore[misc]
        axes = [axis for axis in range(3) if one[axis] != grid[axis]]
        if len(axes) != 1:
            continue
        size, axis = grid[axes[0]], "xyz"[axes[0]]
        of_each, each = grid[0] * grid[1] * grid[2] // size * threads, pieces // count
        if size < count:
            return (
                f"There are {count} {name} and {size} blocks of threads in {axis}: each does "
                f"{-(-count // size)} of the {name} one after the other. "
            )
        if 8 * of_each < each:
            return (
                f"The grid has {size} in {axis}, one for each of the {name}, and {of_each:,} threads "
                f"for its {each:,} pieces: each takes {each // of_each:,} of them in turn. "
            )
    return ""


def told_grid(launches: Sequence[Launch]) -> str:
    """The first launch in words: "a grid of 1 x 8 x 1 blocks of 256 threads"."""
    if not launches:
        return "no launch"
    grid, block = launches[0].grid, launches[0].block
    rows = f" ({' x '.join(map(str, block))})" if max(block[1:]) > 1 else ""
    return f"a grid of {' x '.join(map(str, grid))} blocks of {launches[0].threads} threads{rows}"


def left_in_a_row(launches: Sequence[Launch], wrong: Sequence[bool], pieces: str) -> str:
    """The same for the pieces of a row (or block), if it is right up to a multiple of the threads along
    x, and wrong behind it."""
    threads = launches[0].grid[0] * launches[0].threads if launches else 0
    first = list(wrong).index(True) if True in wrong else 0
    if not first or not threads or not all(wrong[first:]) or first % threads:
        return ""
    each = first // threads
    return (
        f"Of {len(wrong):,} {pieces} the first {first:,} are right: {each} for each of the {threads:,} "
        "threads along x. "
    )


def left_over(launches: Sequence[Launch], first: int, pieces: str) -> str:
    """In words, that the grid ends where the pieces begin that were left out; else the grid alone.

    first: the number of the first piece that is wrong. pieces: "pairs", say.
    """
    for axis, size in zip("xyz", launches[0].grid, strict=True) if launches else ():
        if size == first > 1:
            return (
                f"The first of the {pieces} that is wrong is number {first:,}, and the grid has "
                f"{size:,} blocks in {axis}: what the grid does not cover was left out. "
            )
    return f"The launch has {told_grid(launches)}. "


def expect_whole_warps(launches: list[Launch], what: str) -> None:
    """The number of threads of each block is a multiple of 32."""
    for launch in launches:
        expect(
            launch.threads % 32 == 0,
            f"{what}: blocks of {launch.threads} threads, which are not whole warps",
            why=WHOLE_WARPS,
        )


def expect_within_bounds(launches: list[Launch], bounds: dict[str, int], what: str) -> None:
    """Kernels of these names have blocks of at most so many threads. bounds: see cuda_bounds.py."""
    for launch in launches:
        most = bounds.get(launch.kernel.split("<")[0], 1024)
        expect(
            launch.threads <= most,
            f"{what}: {launch.kernel} is launched with blocks of {launch.threads} threads, and its "
            f"__launch_bounds__ say {most}",
            why=BOUNDS,
        )


def _most(line: str) -> str:
    return f", most of all in {line}" * bool(line)


def expect_no_wrap(
    call: Callable[[], object],
    unchanged: Callable[[], None],
    where: str,
    product: str = "A slot or block number times a size",
    why: str = "",
    fitting: tuple[str, Callable[[], object]] | None = None,
) -> None:
    """What lies 2**32 units further on is not taken for the beginning of the tensor.

    where: the place, which does not exist: a right kernel is stopped there, or leaves it alone.
    unchanged: raises Mismatch if the beginning was used instead. product: what is too large for an int.
    why: told in place of the sentence on that product. fitting: a number that fits into an int, whose
    product does not, in words, and a call with it: it tells which of the two is cut.
    """
    in_64_bits = why or IN_64_BITS.format(product)
    try:
        call()
    except KernelFault as fault:
        if fault.kind == "undefined":
            vars(fault)["blame"] = f"This is {where}. {in_64_bits}"
        if fault.kind != "out_of_bounds":
            raise
        return
    try:
        unchanged()
    except Mismatch as found:
        if fitting:
            cut = CUT_PRODUCT if _wraps(fitting[1], unchanged) else CUT_NUMBER
            in_64_bits = cut.format(fitting[0])
        raise Mismatch(
            f"{where}: its address wraps to the beginning ({found.problem})",
            found.expected,
            found.got,
            why=in_64_bits,
        ) from found


def _wraps(call: Callable[[], object], unchanged: Callable[[], None]) -> bool:
    with off_the_record():
        try:
            call()
            unchanged()
        except KernelFault:
            return False
        except Mismatch:
            return True
    return False


def expect_errors_returned(call: Callable[[], object], what: str) -> None:
    """Where CUDA refuses a launch, the call raises."""
    try:
        with settings(failing=True):
            call()
    except KernelFault:
        raise
    except KernelError:
        return
    problem = f"{what}: CUDA refuses the launch, and the launcher returns 0"
    raise Mismatch(problem, "what launch() returned", "0", RETURNED)


def count_beyond_grid(call: Callable[[int], object], most: int, least: int = 300) -> int:
    """A count, `least` or more, of which a launcher's largest grid leaves some to a loop in its kernel.

    call(count) launches for so many pieces. A grid that still grows up to `most` leaves none. Only the
    launches are looked at, and no kernel runs: what CUDA refuses raises KernelFault.
    """
    largest = _grids(call, most)
    count = FEWEST
    while count < most:
        if _grids(call, count) == largest:
            return min(most, max(least, count + count // 8 + 1))
        count *= 2
    return least


def _grids(call: Callable[[int], object], count: int) -> list[tuple[int, int, int]]:
    with settings(dry=True), recording() as launches:
        try:
            call(count)
        except KernelFault:
            note(f"# called for {count:,} of them at once")
            raise
    return [launch.grid for launch in launches]


@contextmanager
def blamed(kind: str, why: str, *, where: str = "") -> Iterator[None]:
    """A fault of this kind within is what this test looks for: `why` says what leads to it here.

    where: words of its message, "past the end of" say; a fault at another place is not this mistake.
    """
    try:
        yield
    except KernelFault as fault:
        if fault.kind == kind and where in fault.message and not hasattr(fault, "blame"):
            vars(fault)["blame"] = why
        raise
