"""The engine with the gated delta rule of flash-linear-attention (fla) for prompts: a peer of ours."""

import importlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from solutions.state_cache import read_states, write_states
from yaie.backends.states.kernels.tiles import FEW
from yaie.backends.states.triton import TritonStateOps
from yaie.core.contracts.states import StateBatch

FLA = "fla.ops.gated_delta_rule"


def missing() -> str:
    """Why fla cannot be imported, or ""."""
    try:
        importlib.import_module(FLA)
    except Exception as error:  # noqa: BLE001, whatever keeps it from being imported
        return f"{type(error).__name__}: {error}"
    return ""


@contextmanager
def delta_by_fla(compute: Any = None) -> Iterator[Counter[str]]:
    """Meanwhile every step with a prompt in it runs `chunk_gated_delta_rule`. Decodes stay with ours,
    and so does what stands around the rule. Yields how often each was called.

    fla gets states in order and returns new ones: they are read from the pool and written back as lab 22
    does. It is told the lengths on the host as well, once a step, and need not wait for the device.
    compute: what is called in its place.
    """
    chunk = compute or importlib.import_module(FLA).chunk_gated_delta_rule
    ours = TritonStateOps.gated_delta_rule
    calls: Counter[str] = Counter()
    last: list[Any] = [None, {}]  # a step's batch, and what fla is told of it

    def told(batch: StateBatch) -> dict[str, Tensor]:
        if last[0] is not batch:
            on_host = torch.tensor([0, *accumulate(batch.lens)])
            last[:] = batch, {"cu_seqlens": batch.starts.long(), "cu_seqlens_cpu": on_host}
        found: dict[str, Tensor] = last[1]
        return found

    def rule(
        self: TritonStateOps,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        log_decay: Tensor,
        beta: Tensor,
        pool: Tensor,
        batch: StateBatch,
    ) -> Tensor:
        # In a padded step `lens` are bounds.
        if max(batch.lens) <= FEW or sum(batch.lens) != len(v):
            calls["ours"] += 1
            return ours(self, q, k, v, log_decay, beta, pool, batch)
        calls["fla"] += 1
        states = read_states(pool, batch.slots, batch.is_fresh, torch.float32)
        with torch.no_grad():
            out, states = chunk(
                *(one.unsqueeze(0) for one in (q, k, v)), g=log_decay.unsqueeze(0),
                beta=beta.unsqueeze(0), scale=1.0, initial_state=states, output_final_state=True,
                **told(batch),
            )  # fmt: skip
        write_states(pool, batch.slots, states)
        result: Tensor = out.squeeze(0)
        return result

    with patch.object(TritonStateOps, "gated_delta_rule", rule):
        yield calls
