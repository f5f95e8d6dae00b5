"""FlashInfer itself, on a GPU. It compiles two kernels for each kind of layer at first use."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.backends.paged_batches import PLAIN, SHAPES, SPECS, Layers, assert_attends, batch_of
from tests.engine.oracle import make_prompts
from tests.models import tiny
from yaie import LLMEngine, SamplingParams
from yaie.backends import choose_backend
from yaie.backends.flashinfer import FlashInferAttention
from yaie.core.config import EngineConfig

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900), pytest.mark.usefixtures("library")]
GPU = torch.device("cuda", 0)
CLOSE = 0.4
"""Of two log-probabilities in bfloat16. On a CPU those by attention in C++ and in PyTorch are up to 0.1
apart."""


@pytest.fixture
def library() -> None:
    if find_spec("flashinfer") is None:
        pytest.skip("needs a CUDA GPU with flashinfer-python installed")


@pytest.mark.parametrize(
    ("heads", "dim", "dtype", "spec"),
    [
        (2, 64, torch.bfloat16, "plain"),
        (14, 64, torch.bfloat16, "plain"),
        (8, 128, torch.bfloat16, "plain"),
        pytest.param(8, 128, torch.float16, "plain", marks=pytest.mark.nightly),
        pytest.param(8, 64, torch.bfloat16, "window", marks=pytest.mark.nightly),
        pytest.param(8, 64, torch.bfloat16, "softcap", marks=pytest.mark.nightly),
    ],
    ids=lambda value: str(value),
)
@torch.inference_mode()
def test_the_library_attends_as_it_should(
    heads: int, dim: int, dtype: torch.dtype, spec: str
) -> None:
    """Two key heads, each with its own query head, with seven and with four."""
    for shapes, block in ((SHAPES["decodes"], 16), (SHAPES["prompts"], 16), (SHAPES["chunks"], 16),
                          (SHAPES["all of them"], 16), (SHAPES["all of them"], 8)):  # fmt: skip
        batch = batch_of(shapes, block, GPU)
        layers = Layers(batch, block, heads, 2, dim, dtype)
        backend = choose_backend(EngineConfig(backend="flashinfer", mine="none"), GPU, [dim])
        attention = backend.make_attention(layers.pool)
        assert isinstance(attention, FlashInferAttention)
        assert_attends(attention, layers, batch, SPECS[spec], 2 * 2.0**-8)


def test_steps_that_are_planned_while_others_run_keep_their_own_plan() -> None:
    """The host is far ahead: each plan is written where the one before it is uploaded from."""
    batches = [batch_of([(1, 1 + 40 * i + n) for i in range(4)], 16, GPU) for n in range(16)]
    for batch in batches:
        batch.slot_mapping.fill_(-1)  # nothing is stored: all read the same keys
    largest = max(batches, key=lambda batch: batch.block_tables.numel())
    layers = Layers(largest, 16, 8, 2, 64, torch.bfloat16)
    backend = choose_backend(EngineConfig(backend="flashinfer", mine="none"), GPU, [64])
    attention = backend.make_attention(layers.pool)
    attention.run(0, layers.q, layers.k, layers.v, PLAIN, attention.plan(batches[0]))
    torch.cuda.synchronize()
    torch.cuda._sleep(200_000_000)  # a tenth of a second of the GPU's time
    outputs = [
        attention.run(0, layers.q, layers.k, layers.v, PLAIN, attention.plan(batch))
        for batch in batches
    ]
    for batch, out in zip(batches, outputs, strict=True):
        again = attention.run(0, layers.q, layers.k, layers.v, PLAIN, attention.plan(batch))
        torch.testing.assert_close(out, again, rtol=0, atol=2.0**-6)


def answers(folder: Path, device: str, prompts: list[list[int]], asks: Any, **how: Any) -> Any:
    """The requests, each with what it was asked for, of an engine in bfloat16."""
    few: Any = {"num_blocks": 128, "max_num_seqs": 8, "token_budget": 64, "mine": "none"}
    engine = LLMEngine(model=str(folder), device=device, dtype="bfloat16", **few, **how)
    requests = [engine.add_request(prompt, asks)[0] for prompt in prompts]
    while engine.has_work:
        engine.step()
        engine.check()
    return requests


def farthest(folder: Path, device: str, ours: str, theirs: str) -> float:
    """The largest difference of a drawn token's log-probability: ours where it was drawn, among decodes
    and chunks; theirs in a prompt."""
    prompts = make_prompts(12, vocab=tiny.VOCAB)
    asks = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, logprobs=0)
    drawn = answers(folder, device, prompts, asks, backend=ours)
    texts = [prompt + r.output_token_ids for prompt, r in zip(prompts, drawn, strict=True)]
    asks = SamplingParams(temperature=0, max_tokens=1, ignore_eos=True, prompt_logprobs=0)
    read = answers(folder, device, texts, asks, backend=theirs)
    return max(
        abs(mine.logprob - other.logprob)
        for request, text in zip(drawn, read, strict=True)
        for mine, other in zip(
            request.logprobs, text.prompt_logprobs[-len(request.logprobs) :], strict=True
        )
    )


@pytest.fixture
def wide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two layers of four heads on two, of 64 dimensions."""
    monkeypatch.setitem(tiny.FAMILIES, "wide", lambda: tiny._llama(head_dim=64))
    return tiny.tiny_model("wide", tmp_path / "wide")


def test_an_engine_gives_tokens_the_probabilities_that_pytorch_gives_them(wide: Path) -> None:
    assert farthest(wide, "cuda", "flashinfer", "torch") < CLOSE
