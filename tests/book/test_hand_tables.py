"""Tables that were worked out by hand: computed again, from the reference or by the rule."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from book.tools.traces import reference
from book.tools.traces._timeline import BLOCK_SIZE, FOUR, Share, Watched
from tests.book.reading import SOURCE
from yaie.bench.evidence import EVIDENCE
from yaie.core.batch import StepPlan
from yaie.core.contracts.graphs import Size
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request
from yaie.core.step import Ints, StepInput
from yaie.worker.zones import chunk_zones, decode_zones, sizes_of

SYSTEM = 36  # tokens that the prompts of A to D begin with


def table(page: str, *first_cells: str) -> list[list[str]]:
    """The rows below the header that begins with these cells, each a list of its cells."""
    lines = iter((SOURCE / f"{page}.md").read_text("utf-8").splitlines())
    for line in lines:
        if cells(line)[: len(first_cells)] == [*first_cells]:
            next(lines)  # the ruler
            return list(rows(lines))
    raise LookupError(f"{page}.md has no table that begins with {first_cells!r}")


def rows(lines: Iterator[str]) -> Iterator[list[str]]:
    for line in lines:
        if not line.startswith("|"):
            return
        yield cells(line)


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def numbers(cell: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", cell)]


class Running:
    """The reference's scheduler, without a model, on requests of the running example."""

    def __init__(self, names: str, *, blocks: int, budget: int, prefix: int = 0) -> None:
        """prefix: how many tokens all prompts begin with; 0: there is no prefix cache."""
        memory, package = reference("paged_cache"), reference("scheduler")
        self.blocks = memory.BlockManager(blocks, BLOCK_SIZE)
        tree = reference("radix_tree").RadixTree(BLOCK_SIZE) if prefix else None
        cache = memory.KVCacheManager(self.blocks, tree)
        policy = package.POLICIES["fcfs"](cache)
        under = package.Scheduler(cache, policy, max_num_seqs=8, token_budget=budget)
        self.scheduler = Watched(under, self.blocks)
        self.requests = {
            name: Request(
                name,
                [*range(prefix), *(1000 * ord(name) + i for i in range(FOUR[name][0] - prefix))],
                SamplingParams(),
                arrival=number,
                max_tokens=FOUR[name][1],
            )
            for number, name in enumerate(names)
        }
        for request in self.requests.values():
            self.scheduler.add(request)

    def step(self) -> dict[str, Share]:
        plan = self.scheduler.schedule()
        self.scheduler.advance(plan)
        self.take(plan)
        return self.scheduler.moments[-1].shares

    def take(self, plan: StepPlan) -> None:
        tokens = [[0] for item in plan.scheduled if item.samples]
        for request in self.scheduler.update(plan, tokens):
            if request.num_output_tokens >= request.max_tokens:
                self.scheduler.finish(request, FinishReason.LENGTH)


def written(share: Share | None) -> str:
    """A share as the scheduler's chapter writes it: first to last token, a star if it samples."""
    if share is None:
        return ""
    last = share.start + share.num_tokens - 1
    span = str(last) if share.num_tokens == 1 else f"{share.start} to {last}"
    return f"{span} *" if share.draws else span


@pytest.mark.parametrize(("which", "prefix"), [(0, 0), (1, SYSTEM)])
def test_the_plans_of_the_scheduler_s_chapter(which: int, prefix: int) -> None:
    text = (SOURCE / "scheduler.md").read_text("utf-8")
    headers = re.split(r"^\| step \| A \| B \| C \| D \| tokens \|\n", text, flags=re.M)
    _, *lines = headers[which + 1].splitlines()
    running = Running("ABCD", blocks=64, budget=64, prefix=prefix)
    for number, *shares, tokens in rows(iter(lines)):
        plan = running.step()
        assert shares == [written(plan.get(name)) for name in "ABCD"], f"step {number}"
        assert numbers(tokens)[-1] == sum(share.num_tokens for share in plan.values())


def test_the_request_that_is_preempted() -> None:
    running = Running("AB", blocks=8, budget=512)
    a, b = running.requests.values()
    hand = {numbers(row[0])[0]: row[1:] for row in table("scheduler", "after step")}
    assert list(hand) == [17, 18, 30, 31]
    for step in range(1, 32):
        running.step()
        if step not in hand:
            continue
        in_a, in_b, free = map(numbers, hand[step])
        blocks_of = {
            name: len(running.blocks.get_physical_blocks(name)) for name in running.requests
        }
        if not a.is_finished:
            assert in_a == [a.num_tokens, blocks_of["A"]], f"A after step {step}"
        assert in_b == [b.num_tokens, b.num_computed_tokens, blocks_of["B"]], f"B after {step}"
        assert free == [running.blocks.num_free]
        if step == 18:
            assert "Its 64 tokens are kept, of which 17 are its answer" in _words("scheduler")
            assert (b.num_tokens, b.num_output_tokens) == (64, 17)
    assert a.is_finished
    assert b.num_output_tokens == 18


def test_what_a_step_ahead_counts() -> None:
    running = Running("A", blocks=8, budget=512)
    [request] = running.requests.values()
    request.token_ids[:] = request.token_ids[:6]
    request.num_prompt_tokens = 6
    columns = []
    plans = []
    for _ in range(2):
        plans.append(running.scheduler.schedule())
        running.scheduler.advance(plans[-1])
        columns.append(_counts(request))
    for plan in plans:
        running.take(plan)
        columns.append(_counts(request))
    hand = [list(map(int, row[1:])) for row in _below("scheduler", "| | step 1: advance")]
    assert hand == [list(row) for row in zip(*columns, strict=True)]


def _counts(request: Request) -> tuple[int, ...]:
    unread = request.num_output_placeholders
    known = request.num_tokens - unread
    return known, request.num_tokens, request.num_computed_tokens, request.num_in_flight, unread


def test_when_the_four_answer_at_ten_ms_a_step() -> None:
    running = Running("ABCD", blocks=64, budget=512, prefix=SYSTEM)
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for step in range(1, 59):
        for name, share in running.step().items():
            if share.draws:
                first.setdefault(name, step)
                last[name] = step
    hand = _below("inference", "| | first token in step")
    assert [[row[0], *numbers(" ".join(row[1:]))] for row in hand] == [
        [name, first[name], 10 * first[name], last[name], 10 * last[name]] for name in FOUR
    ]


def test_what_a_static_batch_computes_for_nothing() -> None:
    longest = max(answer for _, answer in FOUR.values())
    *hand, total = _below("batching", "| | answer |")
    expected = [[answer, longest, longest - answer] for _, answer in FOUR.values()]
    assert [list(map(int, row[1:])) for row in hand] == expected
    assert list(map(int, total[1:])) == [sum(column) for column in zip(*expected, strict=True)]


def test_what_each_of_the_four_occupies_when_it_ends() -> None:
    *hand, total, shares = _below("paging", "| | tokens | blocks of 16 |")
    held = [prompt + answer - 1 for prompt, answer in FOUR.values()]  # the last is not computed
    columns = [
        [math.ceil(tokens / 16) for tokens in held],
        [16 * math.ceil(tokens / 16) for tokens in held],
        [tokens + 1 for tokens in held],
        [2 ** math.ceil(math.log2(tokens)) for tokens in held],
        [2048] * 4,
    ]
    assert [[int(c.replace(",", "")) for c in row[2:]] for row in hand] == [
        list(row) for row in zip(*columns, strict=True)
    ]
    sums = [sum(held), *map(sum, columns)]
    assert [int(cell.replace(",", "")) for cell in total[1:]] == sums
    assert shares[3:] == [f"{sum(held) / slots:.1%}" for slots in sums[2:]]


def test_which_slot_a_position_has() -> None:
    tables = [[0, 1, 2, 4], [0, 1, 3]]
    for row in table("paged-cache", "token"):
        which, position, entry, block, offset = map(int, row[1:6])
        assert (entry, offset) == divmod(position, 4)
        assert block == tables[which][entry]
        assert row[6] == f"{block} · 4 + {offset} = {4 * block + offset}"


def test_the_calls_and_ticks_of_the_radix_tree_s_example() -> None:
    """Each call of the table on the reference's tree, and the last of the three drawings."""
    tree = reference("radix_tree").RadixTree(BLOCK_SIZE)
    prompts = {
        name: [*range(SYSTEM), *(1000 * ord(name) + i for i in range(sum(FOUR[name]) - SYSTEM))]
        for name in FOUR
    }
    next_block = 0
    for tick, (_, call, when, found, filed) in enumerate(table("radix-tree", "tick"), 1):
        name = when[0]
        prompt, answer = FOUR[name]
        if call == "match":
            blocks, _ = tree.match_prefix(prompts[name][:prompt], (prompt - 1) // BLOCK_SIZE)
            fresh = []
        else:
            computed = numbers(when)[0]
            assert computed in (prompt, prompt + answer - 1)
            count = computed // BLOCK_SIZE
            blocks = tree.peek(prompts[name], count)
            fresh = list(range(next_block, next_block + count - len(blocks)))
            next_block += len(fresh)
            tree.insert(prompts[name], [*blocks, *fresh])
        assert (tree._tick, blocks, fresh) == (tick, numbers(found), numbers(filed))
    *_, drawing = re.findall(r"^root\n.*?(?=^```)", _page("radix-tree"), flags=re.M | re.S)
    drawn = re.findall(r"\[([\d ]+)\] +used (\d+)", drawing)
    assert [(numbers(blocks), int(used)) for blocks, used in drawn] == [
        (node.blocks, node.last_used) for node in _in_order(tree._root)
    ]


def _in_order(node: Any) -> Iterator[Any]:
    """The nodes below one, each before its children."""
    for child in node.children.values():
        yield child
        yield from _in_order(child)


def test_how_often_lab_11_splits() -> None:
    """Each row of the table on the given configurations, for an H200 in bfloat16."""
    part = reference("triton_paged_attention")
    header = "| sequences × keys, query heads on key heads | programs"
    hand = _below("triton-paged-attention", header)
    assert len(hand) == 7
    for shape, programs, slots, share, tiles, splits in hand:
        n, keys, heads, kv_heads = _whole(shape)
        rows_of_tile = part.configs.tile_rows(1, heads // kv_heads)
        config = part.configs.decode_config(128, torch.bfloat16, rows_of_tile, n * kv_heads)
        places = part.splits.CPU_SMS * config.per_sm
        assert _whole(programs) == [n * kv_heads]
        assert _whole(slots)[-1] == places
        assert float(share) == pytest.approx(places / (n * kv_heads), abs=0.006)
        assert _whole(tiles)[-1] == -(-keys // config.tile)
        chosen = part.splits.choose_splits(n, kv_heads, keys, config.tile, places)
        assert _whole(splits) == [chosen]


def _whole(cell: str) -> list[int]:
    """The numbers of a cell, with commas in thousands and between numbers that a space follows."""
    return numbers(re.sub(r"(?<=\d),(?=\d)", "", cell))


def test_one_row_of_the_online_softmax_in_lab_11() -> None:
    hand = table("labs/triton_paged_attention", "top, total before")
    assert len(hand) == 4
    for row in hand:
        before, scores, (new_top,), (base,), (shrink,), weights, (after,) = map(_floats, row)
        top, total = before
        assert new_top == max(top, *scores)
        assert base == (new_top if new_top > -math.inf else 0)
        assert shrink == 2 ** (top - base)
        assert weights == [2 ** (score - base) for score in scores]
        assert after == total * shrink + sum(weights)


def _floats(cell: str) -> list[float]:
    return [float(number) for number in cell.split(",")]


class _Told:
    """What lab 17's `fill` asks of a machine, for one of the two steps of its page."""

    nobody = 12

    def __init__(self, slots: list[int], ids: list[int]) -> None:
        self._slots, self._ids = np.array(slots, np.int32), np.array(ids, np.int32)

    def slots(self, step: StepInput) -> Ints:
        return self._slots

    def token_ids(self, step: StepInput) -> Ints:
        return self._ids


def test_the_two_buffers_of_lab_17() -> None:
    decode, both = [(3, 5, 1)], [(3, 5, 1), (8, 4, 3)]
    alone = _filled(Size(4), decode, [21], [])
    hand = {row[0].strip("`"): row[1:] for row in table("cuda-graphs", "part of the buffer")}
    assert hand.keys() == alone.keys() - {"token_ids"}
    for name, row in hand.items():
        assert _signed(" ".join(row)) == alone[name], name
    mixed = _filled(Size(2, 5, 2), both, [21, 36, 37, 38], [~3, 501, 502, 503])
    for part, decodes, chunks in table("cuda-graphs", "part"):
        written = _signed(decodes.replace("~3", str(~3))) + _signed(chunks)
        assert written == mixed[part.strip("`")], part


def _filled(
    size: Size, shares: list[tuple[int, int, int]], slots: list[int], ids: list[int]
) -> dict[str, list[int]]:
    """The parts of a buffer that held something else. shares: (seat, start, tokens)."""
    part = reference("cuda_graphs")
    seats, starts, counts = np.array(shares, np.int32).T.copy()
    step = StepInput(1, seats, starts, counts, np.ones(len(seats), np.bool_))
    parts = part.parts_of(np.full(part.num_uploaded(size), 77, np.int32), size)
    part.fill(parts, size, step, _Told(slots, ids))
    return {name: values.tolist() for name, values in parts._asdict().items()}


def _signed(cell: str) -> list[int]:
    return [int(number) for number in re.findall(r"-?\d+", cell)]


def test_the_sizes_that_lab_17_counts() -> None:
    alone = reference("cuda_graphs").padded_sizes(256)
    sizes = sizes_of(alone, decode_zones(256), chunk_zones(2048))
    text = _words("cuda-graphs")
    assert f"there are {len(alone)} sizes of decodes alone, with {sum(alone):,} rows" in text
    assert f"would be {sum(alone) / max(alone):.1f} times that of the largest one" in text
    assert f"these {len(alone)} and {len(sizes) - len(alone)} with chunks" in text
    assert len(sizes) == json.loads((EVIDENCE / "gpu_start.json").read_text())["graphs"]["sizes"]


def test_the_intensity_of_a_linear_layer() -> None:
    hand = table("roofline", "rows $n$")
    for row in hand:
        n = numbers(row[0])[0]
        flops, moved = 2 * n * 256 * 1536, 4 * (256 * 1536 + n * (256 + 1536))
        assert float(row[1].split()[0]) == pytest.approx(flops / 1e6, rel=0.02)
        assert float(row[2].split()[0]) == pytest.approx(moved / 1e6, rel=0.01)
        assert float(row[3]) == pytest.approx(flops / moved, rel=0.02)
        assert float(row[4]) == n / 2


def _below(page: str, header: str) -> list[list[str]]:
    """The rows of the table whose header line begins so; for headers with an empty first cell."""
    lines = iter((SOURCE / f"{page}.md").read_text("utf-8").splitlines())
    next(line for line in lines if line.startswith(header))
    next(lines)  # the ruler
    return list(rows(lines))


def _words(page: str) -> str:
    return " ".join(_page(page).split())


def _page(page: str) -> str:
    return (SOURCE / f"{page}.md").read_text("utf-8")
