"""Random scripts of calls on a block manager and on the naive one that is its oracle."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import reject
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from grader.kit import Machine, note, quietly, watch
from grader.suites.paged_cache.block_view import KEYS, describe_blocks
from solutions.paged_cache.naive import NaiveBlockManager
from yaie.core.errors import InvariantError, YaieError

KEY = st.sampled_from(KEYS)
Call = Callable[[Any, Callable[[Sequence[int]], list[int]]], Any]

COUNTS = (
    "A block has one reference for each table it is in and one for each hold. It is free when the "
    "last of them is gone: not before, and not twice."
)
COPY = "Writing into a block that others read too destroys their K and V; its only reader needs no copy."
MOVES = "The pairs say whose content goes where: entry by entry, each to a block of its own."
HANDED_OUT = "Two requests that are given the same block overwrite each other's K and V."


class AllocateMachine(Machine):
    """Tables that grow and go. Others add rules to it.

    Each manager may hand out any free block, so `naive_name` says which block of the oracle's stands
    for which of the part's.
    """

    grades = frozenset({"3.1"})

    @initialize(num_blocks=st.integers(1, 8), num_host_blocks=st.integers(0, 6))
    def start(self, num_blocks: int, num_host_blocks: int) -> None:
        note(
            f"blocks = BlockManager({num_blocks}, block_size=4, num_host_blocks={num_host_blocks})"
        )
        manager = self.part.BlockManager(num_blocks, 4, num_host_blocks)
        self.holds: Counter[int] = Counter()
        self.real = watch(manager, "blocks", describe_blocks(KEYS, self.holds))
        self.quiet = quietly(self.real)
        self.naive = NaiveBlockManager(num_blocks, 4, num_host_blocks)
        self.naive_name = list(range(num_blocks))
        self.on_host: dict[str, list[int]] = {}

    def both(self, task: str, what: str, call: Call) -> tuple[Any, Any] | None:
        """The answers of the part and of the oracle to a call of `task`; None if both refuse it."""
        expected, wanted_error = self.attempt(call, self.naive, self.translate)
        answer, error = self.attempt(call, self.real, list)
        if error is not None and wanted_error is None and not isinstance(error, YaieError):
            if task not in self.grades:
                reject()
            raise error
        got = type(error).__name__ if error else "no error"
        wanted = type(wanted_error).__name__ if wanted_error else "no error"
        self.claim(task, got, wanted, f"how {what} ends")
        return None if error else (answer, expected)

    def attempt(
        self, call: Call, manager: Any, names: Callable[[Sequence[int]], list[int]]
    ) -> tuple[Any, Exception | None]:
        try:
            return call(manager, names), None
        except NotImplementedError:
            raise  # a stub has a verdict of its own
        except Exception as error:  # noqa: BLE001, a part may raise anything
            return None, error

    def translate(self, blocks: Sequence[int]) -> list[int]:
        return [self.naive_name[block] for block in blocks]

    def rename(
        self, task: str, blocks: Sequence[int], naive_blocks: Sequence[int], unused: set[int]
    ) -> None:
        """Both have just handed these out: from now on they are the same blocks."""
        self.claim(task, len(blocks), len(naive_blocks), "how many blocks were handed out")
        taken = sorted(set(blocks) - unused)
        self.claim(task, taken, [], "blocks handed out that were not free", HANDED_OUT)
        self.claim(task, len(set(blocks)), len(blocks), "how many different blocks", HANDED_OUT)
        names = self.naive_name
        for block, name in zip(blocks, naive_blocks, strict=True):
            other = names.index(name)
            names[block], names[other] = name, names[block]

    def agree(self, task: str, why: str = COUNTS) -> None:
        """Both look the same now; if not, the call that was just made is to blame."""
        naive, real, names = self.naive, self.quiet, self.naive_name
        # The oracle's blocks under the names that the part has for them.
        own = {name: block for block, name in enumerate(names)}
        for key in KEYS:
            table = [own[name] for name in naive.get_physical_blocks(key)]
            self.claim(task, list(real.get_physical_blocks(key)), table, f"the table of {key}", why)
            there = naive.num_swapped_blocks(key)
            got = real.num_swapped_blocks(key)
            self.claim(task, got, there, f"how many blocks {key} has on the host", why)
        for block, name in enumerate(names):
            count = naive.ref_count(name)
            self.claim(task, real.ref_count(block), count, f"references to block {block}", why)
        self.claim(task, real.num_free, naive.num_free, "num_free", why)
        self.claim(task, real.num_free_host, naive.num_free_host, "num_free_host", why)
        self.claim(task, self.complaint(), "", "what check() finds wrong", why)

    def complaint(self) -> str:
        try:
            self.quiet.check()
        except InvariantError as error:
            return str(error)
        return ""

    def table(self, key: str) -> list[int]:
        """What the request's table must be."""
        return list(self.quiet.get_physical_blocks(key))

    def owners(self) -> list[str]:
        return [key for key in KEYS if self.table(key)]

    @rule(key=KEY, count=st.integers(0, 4))
    def allocate(self, key: str, count: int) -> None:
        if "3.1" not in self.grades:
            count = min(count, self.naive.num_free)
        what = f"allocate({key!r}, {count})"
        unused = self.unused()
        given = self.both("3.1", what, lambda blocks, _: list(blocks.allocate(key, count)))
        if given:
            self.rename("3.1", *given, unused)
        self.agree("3.1")

    def unused(self) -> set[int]:
        """The blocks, by the part's names, that are free."""
        return {b for b, name in enumerate(self.naive_name) if self.naive.ref_count(name) == 0}

    @rule(key=KEY)
    def free(self, key: str) -> None:
        if key not in self.owners() and "3.1" not in self.grades:
            return
        # Blocks with several holders are task 3.2's matter.
        shared = any(self.naive.ref_count(b) > 1 for b in self.naive.get_physical_blocks(key))
        task = "3.2" if shared else "3.1"
        self.both(task, f"free({key!r})", lambda blocks, _: blocks.free(key))
        self.agree(task)


class ShareMachine(AllocateMachine):
    """And blocks with several holders."""

    grades = frozenset({"3.2"})

    def some_blocks(self, data: st.DataObject, most: int = 3) -> list[int]:
        block = st.integers(0, self.real.num_blocks - 1)
        return data.draw(st.lists(block, max_size=most, unique=True))

    @rule(key=KEY, data=st.data())
    def share(self, key: str, data: st.DataObject) -> None:
        chosen = self.some_blocks(data)
        what = f"share({key!r}, {chosen})"
        self.both("3.2", what, lambda blocks, name: blocks.share(key, name(chosen)))
        self.agree("3.2")

    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        chosen = self.some_blocks(data)
        what = f"hold({chosen})"
        if self.both("3.2", what, lambda blocks, name: blocks.hold(name(chosen))):
            self.holds.update(chosen)
        self.agree("3.2")

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """One block, held or not, or several that are."""
        chosen = self.some_blocks(data, most=1)
        held = sorted(self.holds.elements())
        choose_held: bool = data.draw(st.booleans()) if held else False
        if choose_held:
            chosen = data.draw(st.permutations(held))[: data.draw(st.integers(1, 3))]
        what = f"release({chosen})"
        if self.both("3.2", what, lambda blocks, name: blocks.release(name(chosen))):
            self.holds.subtract(chosen)
        self.agree("3.2")

    @precondition(lambda self: self.owners())
    @rule(data=st.data())
    def replace(self, data: st.DataObject) -> None:
        key, index = self.an_entry(data)
        chosen = self.some_blocks(data)[: len(self.table(key)) - index]
        what = f"replace({key!r}, {index}, {chosen})"
        self.both("3.2", what, lambda blocks, name: blocks.replace(key, index, name(chosen)))
        self.agree("3.2")

    def an_entry(self, data: st.DataObject) -> tuple[str, int]:
        """A table and the index of one of its entries."""
        key = data.draw(st.sampled_from(self.owners()))
        return key, data.draw(st.integers(0, len(self.table(key)) - 1))


class SwapMachine(ShareMachine):
    """And copies on write, and tables that move to the host pool and back."""

    grades = frozenset({"3.3"})

    @precondition(lambda self: self.owners())
    @rule(data=st.data())
    def copy_on_write(self, data: st.DataObject) -> None:
        key, index = self.an_entry(data)
        old, unused = self.table(key)[index], self.unused()
        what = f"copy_on_write({key!r}, {index})"
        pairs = self.both("3.3", what, lambda blocks, _: blocks.copy_on_write(key, index))
        if pairs:
            got, expected = pairs
            self.claim("3.3", got is None, expected is None, f"whether {what} returns None", COPY)
            if got is not None:
                self.claim("3.3", got[0], old, f"the block that {what} says to copy from", COPY)
                self.rename("3.3", [got[1]], [expected[1]], unused)
        self.agree("3.3", COPY)

    @precondition(lambda self: self.owners())
    @rule(data=st.data())
    def swap_out(self, data: st.DataObject) -> None:
        movable = [key for key in self.owners() if key not in self.on_host]
        if not movable:
            return
        key = data.draw(st.sampled_from(movable))
        table, what = self.table(key), f"swap_out({key!r})"
        if moves := self.both("3.3", what, lambda blocks, _: list(blocks.swap_out(key))):
            hosts = [host for _, host in moves[0]]
            devices = [device for device, _ in moves[0]]
            self.claim("3.3", devices, table, f"the device blocks of {what}, in order", MOVES)
            taken = [host for there in self.on_host.values() for host in there]
            twice = sorted(set(hosts) & set(taken)) or len(set(hosts)) != len(hosts)
            self.claim("3.3", bool(twice), False, "whether a host block has two owners", MOVES)
            self.on_host[key] = hosts
        self.agree("3.3", MOVES)

    @precondition(lambda self: self.on_host)
    @rule(data=st.data())
    def swap_in(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.on_host)))
        if self.table(key):
            return
        chosen, unused = self.some_blocks(data), self.unused()
        shared = [block for block in chosen if block not in unused][: len(self.on_host[key])]
        has_room = len(unused) >= len(self.on_host[key]) > 0  # of two faults either may be told
        if has_room and data.draw(st.integers(0, 7)) == 0:
            shared = [min(unused)]  # free: no content
        what = f"swap_in({key!r}, {shared})"
        moves = self.both("3.3", what, lambda blocks, name: list(blocks.swap_in(key, name(shared))))
        if moves:
            real, naive = moves
            hosts = [host for host, _ in real]
            expected = self.on_host.pop(key)[len(shared) :]
            self.claim("3.3", hosts, expected, f"the host blocks of {what}, in order", MOVES)
            fresh = [device for _, device in real]
            self.rename("3.3", fresh, [device for _, device in naive], unused)
        self.agree("3.3", MOVES)

    @precondition(lambda self: self.on_host)
    @rule(data=st.data())
    def discard_swapped(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.on_host)))
        what = f"discard_swapped({key!r})"
        self.both("3.3", what, lambda blocks, _: blocks.discard_swapped(key))
        del self.on_host[key]
        self.agree("3.3", MOVES)
