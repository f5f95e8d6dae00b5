"""Layers that keep a state, beside flash-linear-attention (fla) and beside the time their bytes take.

    python -m yaie.bench.evidence.gpu_states [path] [--tune]

Two minutes, on a GPU that does nothing else. Decode steps of 1 and 256 sequences, and prompts: 32 of
1,024 tokens, and one of 8,192. `--tune` tries how kernels are cut up instead, for six minutes.

    gated_delta_rule   of Qwen3.5-4B: 16 heads of keys, 32 of values, 128 dimensions
    short_conv         of the same layer: 8,192 channels, 4 taps
    selective_scan     of Granite 4.0 H Micro: 64 heads of 64, 128 states
    delta_layer        the first two, with what stands around them in a layer, in Triton and in PyTorch

Each is checked against PyTorch's chunks in float64. fla gets its states in order and returns new ones;
ours are read from slots and written back. The limit is the time in which a copy moves the bytes that
have to be: states once in and once out, and each token's numbers.
"""

import argparse
import importlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from solutions import state_cache
from yaie.backends.states import triton as launches
from yaie.backends.states.around import PlainAround
from yaie.backends.states.torch import TorchStateOps
from yaie.backends.states.triton import Launch, TritonStateOps
from yaie.bench.evidence import EVIDENCE
from yaie.bench.kernels.case import copies_beyond_l2, error_of
from yaie.bench.kernels.ceilings import ceilings
from yaie.bench.kernels.timing import measure
from yaie.bench.report import save
from yaie.core.contracts.states import StateBatch, StateOps

OUT = EVIDENCE / "gpu_states.json"
BATCHES = {
    "decode 1": [1], "decode 256": [1] * 256, "prefill 32 x 1,024": [1024] * 32,
    "prefill 1 x 8,192": [8192],
}  # fmt: skip
TOLERANCE = 0.03
"""Of the worst error, as `error_of` counts it: roundings of bfloat16."""
TRIED = {
    "DELTA_CHUNKS": ("prefill 32 x 1,024", "prefill 1 x 8,192"),
    "DELTA_PREPARE_WARPS": ("prefill 32 x 1,024", "prefill 1 x 8,192"),
    "SCAN_STEP": ("decode 1", "decode 256"),
    "SCAN_CHUNKS": ("prefill 32 x 1,024", "prefill 1 x 8,192"),
}


class Sizes(NamedTuple):
    """heads, v_heads, d: of the delta rule, whose channels go through the convolution. scan_heads, p,
    n_state: of the scan."""

    heads: int = 16
    v_heads: int = 32
    d: int = 128
    scan_heads: int = 64
    p: int = 64
    n_state: int = 128


PUBLISHED = Sizes()


@dataclass(frozen=True, slots=True)
class Call:
    """A rule's arguments, by name. tokens: those with a row a token."""

    rule: str
    tokens: dict[str, Tensor]
    others: dict[str, Any]
    pool: Tensor
    batch: StateBatch

    def run(self, ops: StateOps, pool: Tensor) -> Tensor:
        method: Callable[..., Tensor] = getattr(ops, self.rule)
        return method(**self.tokens, **self.others, pool=pool, batch=self.batch)

    def num_bytes(self) -> int:
        """That have to be moved, with as many for what comes out as for the values that go in."""
        values = self.tokens["v" if self.rule == "gated_delta_rule" else "x"]
        used = self.pool[: len(self.batch.lens)]
        return 2 * used.nbytes + values.nbytes + sum(one.nbytes for one in self.tokens.values())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("path", nargs="?", type=Path, default=OUT)
    parser.add_argument("--tune", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)
    command = "python -m yaie.bench.evidence.gpu_states" + " --tune" * args.tune
    found: dict[str, Any] = {"command": command}
    if args.tune:
        found["tried"] = {name: list(tuned(name, batches)) for name, batches in TRIED.items()}
    else:
        found["ceilings"] = ceilings()
        rate = found["ceilings"]["GB/s"]["rate"]
        found["layers"] = {
            rule: {name: measured(rule, lens, rate) for name, lens in BATCHES.items()}
            for rule in ("gated_delta_rule", "short_conv", "selective_scan")
        }
        found["delta_layer"] = {name: layer(lens) for name, lens in BATCHES.items()}
    save(str(args.path), found)


def measured(rule: str, lens: list[int], rate: float) -> dict[str, Any]:
    """Milliseconds of each implementation, the limit, and what part of it is reached."""
    call = call_of(rule, lens)
    limit = call.num_bytes() / rate / 1e6
    found: dict[str, Any] = {"limit_ms": limit, "error": checked(call, TritonStateOps(state_cache))}
    found["triton"] = time_of(call, partial(call.run, TritonStateOps(state_cache)))
    found["times_the_limit"] = found["triton"]["ms"] / limit
    if rule == "gated_delta_rule":
        found["fla"] = beside_fla(call)
        if "ms" in found["fla"]:
            found["fla_by_triton"] = found["fla"]["ms"] / found["triton"]["ms"]
    print(rule, lens[:1], len(lens), found, flush=True)
    return found


def time_of(call: Call, run: Callable[[Tensor], Any]) -> dict[str, Any]:
    pools = [call.pool.clone() for _ in range(copies_beyond_l2(call.pool.nbytes))]
    return measure(run, [(pool,) for pool in pools]).as_json()


def checked(call: Call, ops: StateOps) -> float:
    """The worst error of what comes out and of the states."""
    pool, exact = call.pool.clone(), call.pool.double()
    out = call.run(ops, pool)
    double = Call(call.rule, doubled(call.tokens), doubled(call.others), exact, call.batch)
    expected = double.run(TorchStateOps(state_cache), exact)
    slots = call.batch.slots
    error = max(error_of(out, expected), error_of(pool[slots], exact[slots]))
    assert error < TOLERANCE, f"{call.rule} is off by {error:.3g}"
    return error


def doubled(given: dict[str, Any]) -> dict[str, Any]:
    return {name: one.double() if isinstance(one, Tensor) else one for name, one in given.items()}


def call_of(rule: str, lens: list[int], sizes: Sizes = PUBLISHED, device: str = "cuda") -> Call:
    """Of sequences that go on, in slots in another order, with numbers as a model has them."""
    with torch.device(device):
        n, tokens = len(lens), sum(lens)
        starts = torch.tensor([0, *lens]).cumsum(0).int()
        batch = StateBatch(lens, starts, torch.randperm(n), torch.zeros(n, dtype=torch.bool))
        if rule == "gated_delta_rule":
            heads, v_heads, d = sizes.heads, sizes.v_heads, sizes.d
            fused = torch.randn(tokens, 2 * heads + v_heads, d)
            fused[:, : 2 * heads] = F.normalize(fused[:, : 2 * heads], dim=-1)
            fused[:, :heads] *= d**-0.5
            q, k, v = fused.bfloat16().split([heads, heads, v_heads], dim=1)
            gates = {
                "log_decay": -F.softplus(torch.randn(tokens, v_heads)),
                "beta": torch.rand(tokens, v_heads),
            }
            return Call(
                rule, {"q": q, "k": k, "v": v, **gates}, {}, torch.randn(n, v_heads, d, d), batch
            )
        if rule == "short_conv":
            channels = (2 * sizes.heads + sizes.v_heads) * sizes.d
            x = torch.randn(tokens, channels, dtype=torch.bfloat16)
            weight = torch.randn(channels, 4, dtype=torch.bfloat16) / 2
            pool = torch.randn(n, channels, 3, dtype=torch.bfloat16)
            return Call(rule, {"x": x}, {"weight": weight, "bias": None, "silu": True}, pool, batch)
        heads, p, n_state = sizes.scan_heads, sizes.p, sizes.n_state
        fused = torch.randn(tokens, heads * p + 2 * n_state, dtype=torch.bfloat16)
        x, b, c = fused.split([heads * p, n_state, n_state], dim=1)
        rows = {"x": x.unflatten(1, (heads, p)), "b": b[:, None], "c": c[:, None] / n_state**0.5}
        rows["dt"] = F.softplus(torch.randn(tokens, heads) - 3)
        others = {"a": -torch.arange(1.0, heads + 1), "d": torch.ones(heads)}
        return Call(rule, rows, others, torch.randn(n, heads, p, n_state), batch)


def layer(lens: list[int], sizes: Sizes = PUBLISHED, device: str = "cuda") -> dict[str, float]:
    """Milliseconds of all that a layer computes between its products, by what stands around the rule."""
    conv = call_of("short_conv", lens, sizes, device)
    heads, v_heads, d = sizes.heads, sizes.v_heads, sizes.d
    with torch.device(device):
        a, b = torch.randn(sum(lens), 2 * v_heads, dtype=torch.bfloat16).chunk(2, dim=1)
        z = torch.randn(sum(lens), v_heads * d, dtype=torch.bfloat16)
        log_a, dt_bias = torch.randn(2, v_heads)
        weight, matrices = torch.randn(d).bfloat16(), torch.randn(len(lens), v_heads, d, d)
    ops = TritonStateOps(state_cache)

    def run(around: PlainAround | TritonStateOps, pool: Tensor, tails: Tensor) -> Tensor:
        mixed = conv.run(ops, tails).unflatten(1, (-1, d))
        q, k, v = mixed.split([heads, heads, v_heads], dim=1)
        q, k, log_decay, beta = around.delta_inputs(q, k, a, b, log_a, dt_bias)
        read = ops.gated_delta_rule(q, k, v, log_decay, beta, pool, conv.batch)
        return around.gated_norm(read, z, weight, 1e-6)

    copies = range(copies_beyond_l2(matrices.nbytes))
    pools = [(matrices.clone(), conv.pool.clone()) for _ in copies]
    found = {
        name: measure(partial(run, around), pools).median
        for name, around in (("triton", ops), ("torch", PlainAround()))
    }
    print("delta_layer", lens[:1], len(lens), found, flush=True)
    return found


def beside_fla(call: Call) -> dict[str, Any]:
    """Its time and its error, or why there is none."""
    try:
        fla = importlib.import_module("fla.ops.gated_delta_rule")
    except Exception as error:  # noqa: BLE001, whatever keeps it from being imported
        return {"missing": f"{type(error).__name__}: {error}"}
    is_step = max(call.batch.lens) == 1
    tokens = [call.tokens[name] for name in ("q", "k", "v", "log_decay", "beta")]
    q, k, v, g, beta = (one.unsqueeze(1 if is_step else 0).contiguous() for one in tokens)
    whole: dict[str, Any] = {"scale": 1.0, "output_final_state": True}
    if not is_step:
        whole["cu_seqlens"] = call.batch.starts.long()
    method = "fused_recurrent_gated_delta_rule" if is_step else "chunk_gated_delta_rule"
    function = getattr(fla, method)

    def run(states: Tensor) -> Any:
        with torch.no_grad():
            return function(q, k, v, g=g, beta=beta, initial_state=states, **whole)

    try:
        out, _ = run(call.pool[call.batch.slots])
        exact = call.pool.double()
        double = Call(call.rule, doubled(call.tokens), {}, exact, call.batch)
        off = error_of(
            out.view(call.tokens["v"].shape), double.run(TorchStateOps(state_cache), exact)
        )
        return {**time_of(call, run), "error": off, "function": method}
    except Exception as error:  # noqa: BLE001, a version that wants other arguments, or another GPU
        torch.cuda.synchronize()
        return {"missing": f"{type(error).__name__}: {error}"[:300]}


def tuned(name: str, batches: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    """Milliseconds of all batches with each way to cut a kernel up."""
    rule = "gated_delta_rule" if name.startswith("DELTA") else "selective_scan"
    calls = {batch: call_of(rule, BATCHES[batch]) for batch in batches}
    ways: list[Any] = [4, 8]
    if isinstance(getattr(launches, name), Launch):
        ways = [Launch(*way) for way in itertools.product((16, 32, 64, 128), (1, 2, 4, 8), (1, 2))]
        if name.endswith("STEP"):
            ways = [way for way in ways if way.stages == 1]
        else:
            ways = [way for way in ways if way.block < 128 and way.warps >= 4]
    for way in ways:
        found: dict[str, Any] = {"way": way}
        with patch.object(launches, name, way):
            for batch, call in calls.items():
                try:
                    found[batch] = time_of(call, partial(call.run, TritonStateOps(state_cache)))[
                        "ms"
                    ]
                except Exception as error:  # noqa: BLE001, too much shared memory, say
                    torch.cuda.synchronize()
                    found[batch] = f"{type(error).__name__}: {error}"[:100]
        print(name, found, flush=True)
        yield found


if __name__ == "__main__":
    main()
