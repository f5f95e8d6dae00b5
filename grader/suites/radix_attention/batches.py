"""Batches over a small pool, the keys that lie in it, and what attention over them must give."""

import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from grader.kit import Mismatch, note
from grader.kit.poison import poisoned
from grader.kit.script import show
from grader.kit.session import SESSION
from grader.submission import told
from grader.suites.radix_attention.words import MOST_SHOWN, blocks, repeated, spans
from solutions.paged_cache import KVPool
from solutions.radix_attention.grouping import groups_of as reference_groups_of
from solutions.radix_attention.naive import naive_radix_attention
from solutions.transformer_ops import TransformerOps
from yaie.core.batch import AttentionBatch, AttentionSpec, KVLayerSpec

SIZE, HEADS, KV_HEADS, DIM, LAYERS = 4, 4, 2, 16, 3
SPEC = AttentionSpec(scale=DIM**-0.5)
QKV = tuple[Tensor, Tensor, Tensor]

UNWRITTEN = (
    "Memory that was never written is NaN here. So no group wrote {rows}, or the mask hid every key "
    "from {queries}."
)
LEFT_OUT = (
    "`gather` was asked for {attended} of the {all} sequences alone: no group wrote {rows} of the "
    "output, and memory that was never written is NaN here."
)


class Seq(NamedTuple):
    """One sequence of a batch: its last `queries` tokens are asked about, and it has `keys` in all."""

    queries: int
    keys: int
    blocks: list[int]

    def __str__(self) -> str:
        asks = "1 query" if self.queries == 1 else f"{self.queries} queries"
        last = f"the last at position {self.keys - 1}"
        keys = f"{self.keys} key{'s' * (self.keys != 1)}"
        return f"{asks}, {last}; {keys}; block table {blocks(self.blocks)}"


def sequences(*lens: tuple[int, int], first_block: int = 1, size: int = SIZE) -> list[Seq]:
    """Sequences of (queries, keys), each with blocks of its own, in no order, from `first_block` on."""
    counts = [-(-keys // size) for _, keys in lens]
    order = torch.randperm(sum(counts), generator=torch.Generator().manual_seed(3)).tolist()
    free = [first_block + block for block in order]
    return [
        Seq(*item, [free.pop() for _ in range(count)])
        for item, count in zip(lens, counts, strict=True)
    ]


def with_prefix_of(other: Seq, seq: Seq, size: int = SIZE) -> Seq:
    """The sequence with the other's blocks where both have nothing but earlier keys."""
    shared = min(seq.keys - seq.queries, other.keys - other.queries) // size
    return seq._replace(blocks=[*other.blocks[:shared], *seq.blocks[shared:]])


def batch_of(seqs: Sequence[Seq], size: int = SIZE, padding: int = 0) -> AttentionBatch:
    """As the engine hands it over: tables padded with the number of some block."""
    width = max((len(seq.blocks) for seq in seqs), default=0)
    positions = [seq.keys - seq.queries + j for seq in seqs for j in range(seq.queries)]
    owners = [seq for seq in seqs for _ in range(seq.queries)]
    slots = [
        seq.blocks[position // size] * size + position % size
        for seq, position in zip(owners, positions, strict=True)
    ]
    padded = [seq.blocks + [padding] * (width - len(seq.blocks)) for seq in seqs]
    return AttentionBatch(
        query_lens=[seq.queries for seq in seqs],
        kv_lens=[seq.keys for seq in seqs],
        query_start_loc=torch.tensor([0, *(seq.queries for seq in seqs)]).cumsum(0).int(),
        seq_lens=torch.tensor([seq.keys for seq in seqs], dtype=torch.int32),
        block_tables=torch.tensor(padded, dtype=torch.int32),
        slot_mapping=torch.tensor(slots, dtype=torch.int64),
        positions=torch.tensor(positions, dtype=torch.int64),
    )


def lengths_of(lens: Sequence[tuple[int, int]]) -> AttentionBatch:
    """A batch of (queries, keys) that was made for its lengths alone: its tables name no blocks."""
    queries, keys = [item[0] for item in lens], [item[1] for item in lens]
    nothing = torch.zeros(0, dtype=torch.int64)
    return AttentionBatch(
        query_lens=queries,
        kv_lens=keys,
        query_start_loc=torch.tensor([0, *accumulate(queries)], dtype=torch.int32),
        seq_lens=torch.tensor(keys, dtype=torch.int32),
        block_tables=torch.zeros(len(keys), 1, dtype=torch.int32),
        slot_mapping=nothing,
        positions=nothing,
    )


class CountingPool(KVPool):
    """A pool that knows how many blocks were gathered from it, and how often it was written to.
    gathers: the shapes of the tables."""

    blocks_gathered = 0
    writes = 0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.gathers: Counter[tuple[int, ...]] = Counter()

    def gather(self, layer: int, block_tables: Tensor) -> tuple[Tensor, Tensor]:
        self.blocks_gathered += block_tables.numel()
        self.gathers[tuple(block_tables.shape)] += 1
        return super().gather(layer, block_tables)

    def write(self, layer: int, k: Tensor, v: Tensor, slot_mapping: Tensor) -> None:
        self.writes += 1
        super().write(layer, k, v, slot_mapping)


class ToldOps(TransformerOps):
    """Operations that know the shapes which attention was given when it failed."""

    given = ""

    def attention(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, spec: AttentionSpec
    ) -> Tensor:
        shapes = [list(getattr(each, "shape", ())) for each in (q, k, v, mask)]
        self.given = "queries {}, keys {}, values {}, mask {}".format(*shapes)
        out = super().attention(q, k, v, mask, spec)
        self.given = ""
        return out


@dataclass
class Case:
    """A batch, a pool that holds the keys of earlier steps, and the new q, k and v.

    Mostly in float64, so that no rounding hides a key too many. padding: the block behind short tables.
    """

    seqs: list[Seq]
    pool: CountingPool
    qkv: QKV
    padding: int = 0

    @property
    def batch(self) -> AttentionBatch:
        return batch_of(self.seqs, self.pool.block_size, self.padding)

    def starts(self) -> list[int]:
        """Where each sequence's queries begin in the flat batch."""
        return [sum(seq.queries for seq in self.seqs[:i]) for i in range(len(self.seqs))]

    def owner(self, row: int) -> int:
        """The sequence that a row of the flat batch belongs to."""
        return max(i for i, start in enumerate(self.starts()) if start <= row)

    def position(self, row: int) -> int:
        """Where the query of a row of the flat batch stands in its sequence."""
        i = self.owner(row)
        return self.seqs[i].keys - self.seqs[i].queries + row - self.starts()[i]

    def of(self, indices: list[int]) -> "Case":
        """Some of the sequences, in this order, over a copy of the pool."""
        starts = self.starts()
        rows = [starts[i] + j for i in indices for j in range(self.seqs[i].queries)]
        q, k, v = (part[rows] for part in self.qkv)
        seqs = [self.seqs[i] for i in indices]
        return Case(seqs, copy.deepcopy(self.pool), (q, k, v), self.padding)

    def expected(self, layer: int = 0, spec: AttentionSpec = SPEC) -> Tensor:
        """The oracle's answer, from a copy of the pool, with the new keys in it. Ask before `run`."""
        pool, (q, k, v) = copy.deepcopy(self.pool), self.qkv
        pool.write(layer, k, v, self.batch.slot_mapping)
        return naive_radix_attention(pool, TransformerOps(), layer, q, spec, self.batch)

    def run(self, part: ModuleType, layer: int = 0, spec: AttentionSpec = SPEC) -> Tensor:
        """Plan and run one layer."""
        attention = attention_of(part, self.pool)
        return self.run_layer(attention, self.plan(attention), layer, spec)

    def plan(self, attention: Any, name: str = "plan", batch: AttentionBatch | None = None) -> Any:
        """A plan of the batch, which is written down."""
        batch = batch or self.batch
        q, k = (list(x.shape[1:]) for x in self.qkv[:2])
        note(f"# blocks of {self.pool.block_size} slots; q [T, {q[0]}, {q[1]}], "
             f"k and v [T, {k[0]}, {k[1]}]")  # fmt: skip
        if len(self.seqs) <= MOST_SHOWN:
            for i, seq in enumerate(self.seqs):
                note(f"# sequence {i}: {seq}")
        lens = f"query_lens={repeated(batch.query_lens)}, kv_lens={repeated(batch.kv_lens)}"
        note(
            f"batch = AttentionBatch({lens}, slot_mapping={show(batch.slot_mapping.tolist())}, ...)"
        )
        note(f"{name} = attention.plan(batch)")
        return attention.plan(batch)

    def run_layer(
        self,
        attention: Any,
        plan: Any,
        layer: int = 0,
        spec: AttentionSpec = SPEC,
        name: str = "plan",
    ) -> Tensor:
        """Run on copies of q, k and v: what a part does to them stays with it."""
        note(f"out = attention.run({layer}, q, k, v, {told_spec(spec)}, {name})")
        # A row that is never written is NaN, not what an earlier call left there.
        with poisoned(), telling_shapes(attention):
            out: Tensor = attention.run(layer, *(part.clone() for part in self.qkv), spec, plan)
        return out


def told_spec(spec: AttentionSpec) -> str:
    """As it was made, without what it leaves open."""
    sinks = None if spec.sinks is None else spec.sinks.tolist()
    given = {"window": spec.window, "softcap": spec.softcap, "sinks": sinks}
    more = "".join(f", {name}={value}" for name, value in given.items() if value is not None)
    return f"AttentionSpec(scale={spec.scale}{more})"


def make_case(
    seqs: list[Seq],
    stale: float | None = None,
    dtype: torch.dtype = torch.float64,
    *,
    size: int = SIZE,
    padding: int = 0,
) -> Case:
    """stale: what lies in every slot that holds no key of an earlier step; None for other numbers."""
    generator = torch.Generator().manual_seed(SESSION.seed)

    def rand(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=dtype)

    num_blocks = 2 + max((block for seq in seqs for block in seq.blocks), default=0)
    pool = CountingPool(
        [KVLayerSpec(KV_HEADS, DIM)] * LAYERS, num_blocks, size, dtype, torch.device("cpu")
    )
    known = torch.zeros(num_blocks * size, dtype=torch.bool)
    for seq in seqs:
        for position in range(seq.keys - seq.queries):
            known[seq.blocks[position // size] * size + position % size] = True
    for layer in range(LAYERS):
        for stored in pool.blocks(layer):
            stored.copy_(rand(*stored.shape))
            if stale is not None:
                stored.flatten(0, 1)[~known] = stale
    total = sum(seq.queries for seq in seqs)
    qkv = rand(total, HEADS, DIM), rand(total, KV_HEADS, DIM), rand(total, KV_HEADS, DIM)
    return Case(seqs, pool, qkv, padding)


def attention_of(part: ModuleType, pool: KVPool, ops: TransformerOps | None = None) -> Any:
    """The part's RadixAttention on the reference's pool and operations."""
    _forgive_grouping(part)
    return part.RadixAttention(pool, ops or ToldOps())


@contextmanager
def telling_shapes(attention: Any) -> Iterator[None]:
    """An error inside of `attention` is told with the shapes that it was given."""
    try:
        yield
    except (RuntimeError, IndexError, ValueError) as error:
        given = getattr(getattr(attention, "_ops", None), "given", "")
        if not given or isinstance(error, NotImplementedError):
            raise
        raise Mismatch(told(error), why=f"`attention` was given {given}.") from error


def is_partition(batch: AttentionBatch, groups: list[list[int]]) -> bool:
    """Every sequence once, and only equal query lengths together."""
    whole = sorted(i for group in groups for i in group) == list(range(len(batch.query_lens)))
    return whole and all(len({batch.query_lens[i] for i in group}) == 1 for group in groups)


def _forgive_grouping(part: ModuleType) -> None:
    """Let `plan` fall back on the reference's groups where the part's own are missing or none.

    Task 5.1 is graded by itself; the other tasks need groups of some kind.
    """
    module = getattr(part, "radix_attention", None)
    own = getattr(module, "groups_of", None)
    if module is None or own is None or own is not part.grouping.groups_of:
        return  # another design, or forgiven already

    def forgiving(batch: AttentionBatch) -> list[list[int]]:
        try:
            groups = [list(group) for group in own(batch)]
            if is_partition(batch, groups):
                return groups
        except Exception:  # noqa: BLE001, whatever a part raises
            pass
        return list(reference_groups_of(batch))

    module.groups_of = forgiving


def unwritten(case: Case, out: Tensor) -> str:
    """What is said of rows of NaN where the pool has none: which they are, and what was gathered."""
    rows = [row for row, values in enumerate(out) if bool(values.isnan().all())]
    many = len(rows) > 1
    attended = sum(shape[0] * times for shape, times in case.pool.gathers.items())
    named = f"row{'s' * many} {spans(rows)}" if many else "this row"
    if many and 0 < attended < len(case.seqs) and rows == list(range(rows[0], rows[-1] + 1)):
        return LEFT_OUT.format(attended=attended, all=len(case.seqs), rows=named)
    return UNWRITTEN.format(rows=named, queries="their queries" if many else "its query")


def expect_rows(
    case: Case,
    out: Tensor,
    expected: Tensor,
    why: str,
    tolerance: float = 1e-9,
    layer: int = 0,
    spec: AttentionSpec = SPEC,
) -> None:
    """Every query's output as expected; the first that is not is named, with the keys that it was made
    of if those of another sequence, layer or length give it."""
    expect_like(out, expected)
    starts = case.starts()
    for i, seq in enumerate(case.seqs):
        for j in range(seq.queries):
            got, right = out[starts[i] + j], expected[starts[i] + j]
            if not torch.allclose(got, right, rtol=tolerance, atol=tolerance):
                row = starts[i] + j
                problem = (
                    f"sequence {i}: the output of its query at position {case.position(row)} is "
                )
                problem += f"wrong (row {row} of the batch)"
                if got.isnan().all() and not right.isnan().any():
                    problem = f"{problem}: all of it is NaN"
                    if all(kept.isfinite().all() for kept in case.pool.blocks(0)):
                        why = f"{unwritten(case, out)} {why}"
                elif others := _rows_like(got, expected, tolerance):
                    problem += f": it holds what row {others[0]} should, position "
                    problem += f"{case.position(others[0])} of sequence {case.owner(others[0])}"
                elif keys := keys_that_give(case, got, row, layer, spec, tolerance):
                    problem += f": it is what this query gets from {keys}"
                raise Mismatch(problem, _shortly(right), _shortly(got), why)


def keys_that_give(
    case: Case, got: Tensor, row: int, layer: int, spec: AttentionSpec, tolerance: float
) -> str:
    """Which keys, other than the right ones, give this output for the query of a row, in words."""
    i = case.owner(row)
    seq, ops, query = case.seqs[i], TransformerOps(), case.qkv[0][row : row + 1]
    position, size = case.position(row), case.pool.block_size
    pool = copy.deepcopy(case.pool)

    def gives(of: Seq, keys: int, at: int = layer) -> bool:
        batch = batch_of([Seq(1, keys, of.blocks)], size)
        out = naive_radix_attention(pool, ops, at, query, spec, batch)[0]
        return bool(torch.isclose(out, got, rtol=tolerance, atol=tolerance).all())

    before = position + 1
    if gives(seq, before):
        return "what the pool holds after `run`: the new keys and values are not in it"
    pool.write(layer, *case.qkv[1:], case.batch.slot_mapping)
    for keys in range(1, len(seq.blocks) * size + 1):
        if keys != before and gives(seq, keys):
            return f"its first {keys} keys" if keys > 1 else "its first key alone"
    for j, other in enumerate(case.seqs):
        for keys in (position + 1, other.keys) if j != i else ():
            if keys <= len(other.blocks) * size and gives(other, keys):
                return f"the first {keys} keys of sequence {j}"
    for at in range(len(pool._device)):
        if at != layer and gives(seq, before, at):
            return f"the keys and values of layer {at}"
    return ""


def _rows_like(row: Tensor, rows: Tensor, tolerance: float) -> list[int]:
    """Which of `rows` [T, heads, d] are `row`."""
    alike = torch.isclose(rows, row, rtol=tolerance, atol=tolerance).flatten(1).all(1)
    return [int(index) for index in alike.nonzero().flatten()]


def expect_like(out: Any, expected: Tensor) -> None:
    """A tensor of the shape and the dtype of q."""
    if not isinstance(out, Tensor):
        raise Mismatch("run returns no tensor", "a tensor", type(out).__name__)
    for what, got, right in (
        ("shape", list(out.shape), list(expected.shape)),
        ("dtype", out.dtype, expected.dtype),
    ):
        if got != right:
            raise Mismatch(f"run returns a tensor of another {what} than q", str(right), str(got))


def _shortly(row: Tensor) -> str:
    """The first numbers of a query's output [heads, d]."""
    numbers = ", ".join(f"{x:.4g}" for x in row.flatten()[:4].tolist())
    return f"[{numbers}, ...]"
