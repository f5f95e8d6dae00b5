"""One request, one answer, bit for bit, whatever runs beside it (`--deterministic`), on a CPU.

Floating-point sums depend on the order of their terms, and libraries choose the order by the shape of
what they are given: a token computed among 16 rows may differ in its last bits from the same token
computed among 17 (He 2025, "Defeating Nondeterminism in LLM Inference"). A chunk boundary, a cached
prefix, a preemption or a neighbour changes the shape. So here nothing has another shape than ever:

    the model       runs on tiles of a fixed number of rows, the last one padded; the head does too
    attention       takes each query alone, over as many blocks as its position needs
    the sampler     draws row by row

The rows of a tile must not influence one another, nor may a row's place matter. What a library does
there cannot be known, so it is tried when the engine starts: a model that does not pass with whole
tiles runs one token at a time, where there is nobody else. On a GPU the kernels themselves look at no
other row: see `invariant`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.batch import AttentionBatch, AttentionSpec, Rotation, SamplingBatch
from yaie.core.config import EngineConfig
from yaie.core.contracts import Attend, BatchAttention, Sampler
from yaie.core.errors import ConfigError
from yaie.models.adapter import ModelAdapter, registered_adapter

TILE = 16
TRIALS = 4


def check_deterministic(config: EngineConfig, backend_name: str, device: torch.device) -> None:
    """Raise ConfigError if the setting is on and cannot be kept here."""
    if not config.deterministic:
        return
    wanted = "torch" if device.type == "cpu" else "triton"
    if backend_name not in (wanted, "triton"):
        raise ConfigError(
            f"deterministic runs on backend {wanted} here, not on {backend_name!r}: leave out one of "
            "the two",
            param="deterministic",
        )


class TiledAdapter(ModelAdapter):
    """Another adapter's `forward` and `logits`, in tiles of `tile` rows."""

    def __init__(self, adapter: ModelAdapter) -> None:
        kind = (adapter.dtype, adapter.device, adapter.max_length)
        super().__init__(adapter.config, adapter.ops, *kind)
        self.kv_layers, self.vocab_size = adapter.kv_layers, adapter.vocab_size
        self._adapter = adapter
        self.tile = TILE if rows_are_independent(adapter) else 1

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """See `ModelAdapter.forward`. `attend` must be of `LoneAttention`."""
        return self._tiled(
            lambda ids, places: self._adapter.forward(ids, places, attend), token_ids, positions
        )

    def logits(self, hidden: Tensor) -> Tensor:
        """See `ModelAdapter.logits`."""
        return self._tiled(self._adapter.logits, hidden)

    def _tiled(self, function: Callable[..., Tensor], *rows: Tensor) -> Tensor:
        count = len(rows[0])
        missing = -count % self.tile
        # Copies: how a tile lies in memory may matter as much as its shape.
        padded = (F.pad(part, (0, 0) * (part.dim() - 1) + (0, missing)) for part in rows)
        tiles = zip(*(part.split(self.tile) for part in padded), strict=True)
        return torch.cat([function(*(part.clone() for part in tile)) for tile in tiles])[:count]


@dataclass(slots=True)
class LonePlan:
    """queries: the plan of each query of the batch, in order. done: by layer, how many have attended."""

    queries: list[Any]
    done: dict[int, int] = field(default_factory=dict)


class LoneAttention:
    """See `yaie.core.contracts.BatchAttention`: each query of a batch is a batch of its own.

    `run` is called with the rows of one tile after another, and goes on in each layer where the tile
    before has ended. Rows beyond the batch are padding: they attend to nothing and give zeros.
    """

    def __init__(self, attention: BatchAttention, block_size: int) -> None:
        self._attention = attention
        self._block_size = block_size

    def plan(self, batch: AttentionBatch) -> LonePlan:
        """One plan for each query token."""
        plans = []
        row = 0
        for index, (num_queries, kv_len) in enumerate(
            zip(batch.query_lens, batch.kv_lens, strict=True)
        ):
            for seen in range(kv_len - num_queries + 1, kv_len + 1):
                table = batch.block_tables[index : index + 1, : -(-seen // self._block_size)]
                plans.append(self._attention.plan(_alone(batch, row, seen, table)))
                row += 1
        return LonePlan(plans)

    def run(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, plan: LonePlan
    ) -> Tensor:
        """Write K and V of each row and attend to it, one by one. Returns [rows, heads, d]."""
        start = plan.done.get(layer, 0)
        plans = plan.queries[start : start + len(q)]
        plan.done[layer] = start + len(plans)
        out = torch.zeros_like(q)
        for row, one in enumerate(plans):
            here = slice(row, row + 1)
            query, key, value = (part[here].clone() for part in (q, k, v))
            out[here] = self._attention.run(layer, query, key, value, spec, one)
        return out


def _alone(batch: AttentionBatch, row: int, seen: int, table: Tensor) -> AttentionBatch:
    """Query token `row` of a batch, which sees `seen` keys, as a batch of its own."""
    return AttentionBatch(
        query_lens=[1],
        kv_lens=[seen],
        query_start_loc=torch.tensor([0, 1], dtype=torch.int32),
        seq_lens=torch.tensor([seen], dtype=torch.int32),
        block_tables=table,
        slot_mapping=batch.slot_mapping[row : row + 1],
        positions=batch.positions[row : row + 1],
    )


class LoneSampler:
    """See `yaie.core.contracts.Sampler`: each row of a batch is a batch of its own."""

    def __init__(self, sampler: Sampler) -> None:
        self._sampler = sampler

    def sample(self, logits: Tensor, batch: SamplingBatch) -> Tensor:
        """Draw from `logits` [n, vocab]; returns [n] int64."""
        rows = range(len(logits))
        return torch.cat(
            [self._sampler.sample(logits[row : row + 1].clone(), _row(batch, row)) for row in rows]
        )


def _row(batch: SamplingBatch, row: int) -> SamplingBatch:
    """Row `row` of a batch as a batch of its own, with flags of its own."""

    def cut(part: Any) -> Any:
        tensors = {
            item.name: value[row : row + 1].clone()
            for item in fields(part)
            if isinstance(value := getattr(part, item.name), Tensor)
        }
        return replace(part, **tensors)

    alone: SamplingBatch = cut(batch)
    alone.all_greedy = bool(alone.temperature.item() == 0)
    alone.any_top_k = bool(alone.top_k.item() > 0)
    alone.any_top_p = bool(alone.top_p.item() != 1)
    alone.any_min_p = bool(alone.min_p.item() != 0)
    if batch.penalties is not None:
        alone.penalties = cut(batch.penalties)
        values = (alone.penalties.presence, alone.penalties.frequency, alone.penalties.repetition)
        if [value.item() for value in values] == [0.0, 0.0, 1.0]:
            alone.penalties = None
    return alone


@torch.inference_mode()
def rows_are_independent(adapter: ModelAdapter) -> bool:
    """Whether a token in a tile comes out the same at any place in it, beside any others.

    Only hand-written adapters without experts are tried: which tokens meet at an expert, in a product
    whose size is their number, shows in no trial.
    """
    if adapter.rows_meet:
        return False
    if registered_adapter(adapter.config.architectures[0], adapter.config) is not type(adapter):
        return False
    generator = torch.Generator().manual_seed(0)
    places = torch.randint(adapter.max_length, (TILE,), generator=generator)
    for _ in range(TRIALS):
        ids = torch.randint(adapter.vocab_size, (TILE,), generator=generator)
        order = torch.randperm(TILE, generator=generator)
        straight, shuffled = _both(adapter, ids, places), _both(adapter, ids[order], places[order])
        others = ids.clone()
        others[1:] = torch.randint(adapter.vocab_size, (TILE - 1,), generator=generator)
        beside = _both(adapter, others, places)
        if not torch.equal(straight[order], shuffled) or not torch.equal(straight[0], beside[0]):
            return False
    return True


def _both(adapter: ModelAdapter, token_ids: Tensor, positions: Tensor) -> Tensor:
    """Hidden states and logits [TILE, d + vocab] of tokens that attend to nothing but themselves."""
    hidden = adapter.forward(token_ids, positions, attend_to_oneself)
    return torch.cat([hidden.float(), adapter.logits(hidden)], dim=1)


def attend_to_oneself(
    layer: int,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    spec: AttentionSpec,
    rotation: Rotation | None = None,
) -> Tensor:
    if rotation is not None:
        q, k = rotation.apply(q, k)
    return v.repeat_interleave(q.shape[1] // v.shape[1], dim=1) + q
