"""`InvariantBackend`: the backend in Triton with nothing in it that looks at the size of a batch."""

from functools import partial

import torch

from yaie.backends.attention import RotateAndStore
from yaie.backends.base import PLAIN, Roles
from yaie.backends.invariant.attention import SPLITS, InvariantAttention
from yaie.backends.invariant.ops import InvariantOps
from yaie.backends.invariant.products import InvariantGemm
from yaie.backends.invariant.sampler import TiledSampler
from yaie.backends.triton import TritonBackend
from yaie.core.contracts import BatchAttention, KVPool, Sampler, TransformerOps
from yaie.core.errors import ConfigError
from yaie.parts import Parts


class InvariantBackend(TritonBackend):
    """See `Backend`. It is what `triton` names with `deterministic`.

    Kernels of layers and attention are the reference's: a part's contract says what it computes, and not
    in which order.
    """

    name = "triton"
    dtypes = (torch.float16, torch.bfloat16)

    def __init__(self, parts: Parts, roles: Roles, note: str = "") -> None:
        """Raises ConfigError for a learner's part, or one in PyTorch, where the order of sums counts."""
        super().__init__(parts, roles, note)
        for role in ("ops", "attention"):
            yours = [lab for lab in roles[role] if parts.is_yours(lab)]
            if yours or roles[role] == PLAIN[role]:
                raise ConfigError(
                    f"deterministic on a GPU needs the reference's kernels, and {role} is computed by "
                    f"{(yours or roles[role])[0]}: add --mine none, or leave deterministic out",
                    param="deterministic",
                )
        self._products = self.invariant_gemm = InvariantGemm()

    def make_ops(self) -> TransformerOps:
        return InvariantOps(self._layer_kernels(), self._products)

    def make_attention(self, pool: KVPool) -> BatchAttention:
        from yaie.backends.fused import norm_rope_store

        lab = self.parts[self.roles["attention"][1]]
        decode, configs = lab.paged_attention.decode, lab.configs

        def attend(q, keys, values, tables, lens, spec):  # type: ignore[no-untyped-def]
            rows = configs.tile_rows(1, q.shape[1] // keys.shape[2])
            config = configs.decode_config(q.shape[2], q.dtype, rows)
            return decode(q, keys, values, tables, lens, spec, SPLITS, config)

        fused = self._layer_kernels().rope_and_store
        store = RotateAndStore(self._store_kernel(), fused, partial(norm_rope_store, fixed=True))
        return InvariantAttention(pool, store, attend)

    def make_sampler(self) -> Sampler:
        return TiledSampler(super().make_sampler())
