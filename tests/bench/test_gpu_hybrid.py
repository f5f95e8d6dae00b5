"""What `yaie.bench.evidence.gpu_hybrid` counts and compares; its figures come from a GPU."""

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("Triton's interpreter is off: there is a GPU", allow_module_level=True)

from solutions import state_cache
from yaie.backends.states.triton import TritonStateOps
from yaie.bench.evidence import gpu_hybrid
from yaie.bench.evidence.delta_by_fla import delta_by_fla
from yaie.bench.evidence.gpu_decode_trace import Span
from yaie.bench.evidence.gpu_hybrid import Sizes, by_kernel, compared, decode, prefill, prefix
from yaie.bench.evidence.gpu_states import Sizes as RuleSizes
from yaie.bench.evidence.gpu_states import call_of
from yaie.bench.shapes import make_checkpoint
from yaie.bench.throughput.asked import Asked
from yaie.bench.workload import Lengths
from yaie.core.config import EngineConfig
from yaie.engine.llm_engine import LLMEngine

ASKED = Asked(
    "prefix", 1, Lengths.parse("1", "2", None), (0,), groups=2, group_size=3,
    shared_tokens=128, own_tokens=8,
)  # fmt: skip
FEW = Sizes(batches=(2,), prompt=40, steps=3, seeds=(0,), prompts=3, pairs=2, prefix=ASKED)
SMALL = RuleSizes(heads=1, v_heads=2, d=16)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> LLMEngine:
    folder = make_checkpoint("tiny-hybrid", tmp_path_factory.mktemp("shapes") / "made")
    return LLMEngine(
        model=str(folder), num_blocks=128, mine="none", backend="torch", max_num_seqs=8
    )


def chunk_by_lab_22(
    q: Tensor, k: Tensor, v: Tensor, *, g: Tensor, beta: Tensor, scale: float,
    initial_state: Tensor, output_final_state: bool, cu_seqlens: Tensor, cu_seqlens_cpu: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """What fla's function says that it does, sequence after sequence."""
    assert (scale, output_final_state, cu_seqlens.dtype) == (1.0, True, torch.int64)
    assert cu_seqlens.tolist() == cu_seqlens_cpu.tolist()
    outs, states = [], []
    for i, (begin, end) in enumerate(pairwise(cu_seqlens.tolist())):
        tokens = [one[:, begin:end] for one in (q, k, v, g, beta)]
        out, after = state_cache.delta_chunk(*tokens, initial_state[i : i + 1].clone())
        outs.append(out.to(v.dtype))
        states.append(after)
    return torch.cat(outs, dim=1), torch.cat(states)


def test_the_peer_reads_and_writes_the_slots_that_our_kernels_do() -> None:
    call = call_of("gated_delta_rule", [1, 70, 9], SMALL, "cpu")
    call.batch.is_fresh[1] = True
    ops, pools = TritonStateOps(state_cache), [call.pool.clone() for _ in range(2)]
    expected = call.run(ops, pools[0])
    with delta_by_fla(chunk_by_lab_22) as calls:
        out = call.run(ops, pools[1])
    assert calls == {"fla": 1}
    torch.testing.assert_close(out.float(), expected.float(), rtol=0.03, atol=0.03)
    torch.testing.assert_close(pools[1], pools[0], rtol=0.03, atol=0.03)
    call.run(ops, pools[0])
    assert calls == {"fla": 1}, "ours again behind it"


def test_decodes_and_padded_steps_stay_with_our_kernels() -> None:
    ops = TritonStateOps(state_cache)
    with delta_by_fla(chunk_by_lab_22) as calls:
        for lens, bounds in (([1, 8], [1, 8]), ([9], [30])):
            call = call_of("gated_delta_rule", lens, SMALL, "cpu")
            call.batch.lens[:] = bounds
            call.run(ops, call.pool.clone())
    assert calls == {"ours": 2}


def test_a_steps_bytes_are_weights_keys_and_states_there_and_back(engine: LLMEngine) -> None:
    found = decode(engine, 2, FEW, rate=1e9)
    width = engine.model.dtype.itemsize
    state = 3 * (3 * 256 * width + 4 * 32 * 32 * 4)  # of three layers: tails and matrices
    assert found["context"] == 40 + 8 + 1
    assert found["bytes"]["states"] == 2 * 2 * state
    assert found["bytes"]["keys and values"] == 2 * (2 * 2 * 32 * width) * 50
    assert found["bytes"]["weights"] == engine.model.weight_bytes
    assert found["limit_ms"] == pytest.approx(sum(found["bytes"].values()) / 1e6)
    assert found["times_the_limit"] == found["step_ms"] / found["limit_ms"]
    assert found["step_ms"] > 0


def test_prompts_that_begin_alike_resume_from_checkpoints(engine: LLMEngine) -> None:
    found = prefix(engine, ASKED)
    assert [len(found[name]) for name in ("seconds", "hit_rate")] == [1, 1]
    assert found["hit_rate"][0] > 0.5


def test_how_much_faster_checkpoints_are() -> None:
    found = {"with": {"seconds": [1.0, 2.0]}, "without": {"seconds": [4.0, 5.0]}}
    assert compared(ASKED, EngineConfig(), **found)["ratio"] == [4.0, 2.5]


def test_a_peer_that_is_never_called_is_no_peer(engine: LLMEngine) -> None:
    """In PyTorch no kernel is there to be replaced."""
    with pytest.raises(AssertionError, match="never called"):
        prefill(engine, FEW, chunk_by_lab_22)


def test_without_fla_our_own_prefill_is_measured(
    engine: LLMEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_hybrid, "missing", lambda: "no module")
    found = prefill(engine, FEW)
    assert (found["missing"], len(found["seconds"]["ours"])) == ("no module", 2)
    assert "of_fla" not in found


def test_prefills_of_both_are_measured_in_turn(tmp_path: Path) -> None:
    folder = make_checkpoint("tiny-hybrid", tmp_path / "made")
    settings: dict[str, Any] = {"num_blocks": 64, "mine": "none", "max_num_seqs": 4}
    engine = LLMEngine(model=str(folder), backend="triton", prefix_caching=False, **settings)
    found = prefill(engine, Sizes(prompt=12, prompts=2, pairs=1), chunk_by_lab_22)
    assert [len(one) for one in found["seconds"].values()] == [1, 1]
    assert len(found["of_fla"]) == 1


def test_kernels_are_added_up_by_name() -> None:
    spans = [Span(0, 4, "a"), Span(5, 6, "b"), Span(7, 9, "a")]
    assert by_kernel(spans, steps=2) == {"a": [3.0, 1.0], "b": [0.5, 0.5]}
