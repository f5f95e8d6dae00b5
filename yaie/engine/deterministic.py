"""One request, one answer, bit for bit, whatever runs beside it (`--deterministic`).

Floating-point sums depend on the order of their terms, and libraries choose the order by the shape of
what they are given: a token computed among 16 rows may differ in its last bits from the same token
computed among 17 (He 2025, "Defeating Nondeterminism in LLM Inference"). A chunk boundary, a cached
prefix, a preemption or a neighbour changes the shape. So here nothing has another shape than ever:

    the model       runs on tiles of a fixed number of rows, the last one padded; the head does too
    attention       takes each query alone, over as many blocks as its position needs
    the sampler     draws row by row

The rows of a tile must not influence one another, nor may a row's place matter. What a library does
there cannot be known, so it is tried when the engine starts: a model that does not pass with whole
tiles runs one token at a time, where there is nobody else.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from yaie.core.batch import AttentionBatch, AttentionSpec, Rotation, SamplingBatch
from yaie.core.config import EngineConfig
from yaie.core.contracts import Attend, RadixAttention, Sampler
from yaie.core.errors import ConfigError
from yaie.engine.backends import Backend
from yaie.engine.request_sampler import RequestBatch
from yaie.engine.sampling import SamplingBatchBuilder
from yaie.models.adapter import ModelAdapter, registered_adapter

TILE = 16
TRIALS = 4


def check_deterministic(config: EngineConfig, backend: Backend, device: torch.device) -> None:
    """Raise ConfigError if the setting is on and cannot be kept here."""
    if not config.deterministic:
        return
    if device.type != "cpu":
        raise ConfigError(
            "deterministic is for the CPU as yet: the libraries of a GPU choose their kernels by the "
            "shape of the batch. Leave it out, or start with --device cpu.",
            param="deterministic",
        )
    if backend.name != "torch":
        raise ConfigError(
            f"deterministic runs on backend torch, not on {backend.name!r}: leave out one of the two",
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
    """See `yaie.core.contracts.RadixAttention`: each query of a batch is a batch of its own.

    `run` is called with the rows of one tile after another, and goes on in each layer where the tile
    before has ended. Rows beyond the batch are padding: they attend to nothing and give zeros.
    """

    def __init__(self, attention: RadixAttention, block_size: int) -> None:
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

    def __init__(self, sampler: Sampler, vocab_size: int, device: torch.device) -> None:
        self._sampler = sampler
        self._builder = SamplingBatchBuilder(vocab_size, device)

    def sample(self, logits: Tensor, batch: SamplingBatch) -> Tensor:
        """Draw from `logits` [n, vocab]; returns [n] int64."""
        assert isinstance(batch, RequestBatch)
        return torch.cat(
            [
                self._sampler.sample(logits[row : row + 1].clone(), self._builder.build([request]))
                for row, request in enumerate(batch.requests)
            ]
        )


@torch.inference_mode()
def rows_are_independent(adapter: ModelAdapter) -> bool:
    """Whether a token in a tile comes out the same at any place in it, beside any others.

    Only hand-written adapters are tried: a model of transformers may send tokens to experts, and which
    of them meet there shows in no trial.
    """
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
    hidden = adapter.forward(token_ids, positions, _attend_to_oneself)
    return torch.cat([hidden.float(), adapter.logits(hidden)], dim=1)


def _attend_to_oneself(
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
