"""Greedy tokens do not depend on what the kernels are written in."""

import itertools
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.oracle import greedy, last_logits, make_prompts
from tests.learner import faults_of, hand_in, hand_in_faulty
from tests.models.tiny import tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.backends.cpu.build import missing
from yaie.core.errors import KernelError
from yaie.core.request import FinishReason, Request
from yaie.cuda.nvcc import find_nvcc
from yaie.curriculum.manifest import load_curriculum
from yaie.models.tutor import TUTOR_PATH

# Rotation and groups; heads normed; windows, softcap, sinks and odd heads; experts.
FAMILIES = ("tutor", "llama-tied", "qwen3", "gpt2", "mistral", "gemma2", "gemma3", "gpt_oss")
ROUNDING = 1e-4
MAX_TOKENS = 16
NEAR_TIE = 8 * 2**-8
"""Of two logits in bfloat16, by the largest: eight roundings of it."""


def run(engine: LLMEngine, prompts: list[list[int]], max_tokens: int) -> list[list[int]]:
    """Add every prompt, step to the end, and check every invariant after every step."""
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)
    requests = [engine.add_request(prompt, params)[0] for prompt in prompts]
    while engine.has_work:
        engine.step()
        engine.check()
    assert all(request.finish_reason is FinishReason.LENGTH for request in requests)
    return [request.output_token_ids for request in requests]


# --- without a GPU: Triton interpreted, CUDA in the runtime ---

FEW = make_prompts(4, vocab=256)[
    1:
]  # of 2, 15 and 16 tokens, the last with a prefix of the one before


def few_tokens(backend: str, folder: Path = TUTOR_PATH, **settings: str) -> list[list[int]]:
    """In chunks, whole, with decodes beside, and again on a cached prefix."""
    few: Any = {
        "num_blocks": 16,
        "block_size": 8,
        "token_budget": 20,
        "max_num_seqs": 4,
        **settings,
    }
    engine = LLMEngine(model=str(folder), backend=backend, device="cpu", mine="none", **few)
    first = run(engine, FEW, 2)
    assert run(engine, FEW[-1:], 1) == [first[-1][:1]]
    assert engine.stats()["cached_tokens"] > 0
    return first


@pytest.fixture(scope="module")
def plain() -> list[list[int]]:
    return few_tokens("torch")


@pytest.mark.slow
def test_triton_interpreted_gives_the_tokens_of_pytorch(tmp_path: Path) -> None:
    """On a small model: the interpreter runs a launch program by program."""
    pytest.importorskip("triton")
    folder = tiny_model("qwen3", tmp_path / "qwen3")
    assert few_tokens("triton", folder) == few_tokens("torch", folder)


@pytest.mark.nightly
def test_triton_interpreted_gives_the_tutors_tokens(plain: list[list[int]]) -> None:
    pytest.importorskip("triton")
    assert few_tokens("triton") == plain


@pytest.mark.nightly
@pytest.mark.slow
def test_padded_steps_give_the_tokens_of_pytorch(tmp_path: Path) -> None:
    """Three requests in steps of four rows, by kernels: what a GPU replays. On a small model, since each
    size of step runs once before."""
    pytest.importorskip("triton")
    folder = tiny_model("llama", tmp_path / "llama")
    assert few_tokens("triton", folder, graphs="padded") == few_tokens("torch", folder)


@pytest.mark.slow
def test_cuda_on_the_cpu_gives_the_tokens_of_pytorch(plain: list[list[int]]) -> None:
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("needs a C++ compiler")
    assert few_tokens("cuda") == plain


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gemma2", "gpt_oss", "phi3"])
def test_windows_softcap_and_sinks(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Phi-3 by the generic adapter, whose queries and keys lie in memory as transformers likes it."""
    if shutil.which("g++") is None and shutil.which("clang++") is None:
        pytest.skip("needs a C++ compiler")
    monkeypatch.setattr("yaie.backends.attention_plan.GATHER_FROM", 4)
    folder = tiny_model(family, tmp_path / family)
    assert few_tokens("cuda", folder) == few_tokens("torch", folder)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_attention_in_cpp_gives_the_tokens_of_pytorch(family: str, tmp_path: Path) -> None:
    if missing():
        pytest.skip(missing())
    folder = TUTOR_PATH if family == "tutor" else tiny_model(family, tmp_path / family)
    assert few_tokens("cpu", folder) == few_tokens("torch", folder)


# --- a learner's kernels ---


def one_request(engine: LLMEngine) -> Request:
    (request,) = engine.add_request([5, 6, 7], SamplingParams(temperature=0, max_tokens=1))
    while engine.has_work:
        engine.step()
    return request


def test_a_learners_kernel_runs_and_is_blamed_for_what_it_raises(labs: Path) -> None:
    pytest.importorskip("triton")
    hand_in(labs, "triton_paged_attention")
    hand_in_faulty(labs, "triton_ops", "LayerKernels.silu_mul")
    engine = LLMEngine(model=str(TUTOR_PATH), backend="triton", device="cpu", num_blocks=16,
                       mine="triton_ops,triton_paged_attention")  # fmt: skip
    owners = {part.lab: part.owner for part in engine.parts}
    assert owners["triton_ops"] == owners["triton_paged_attention"] == "yours"
    assert owners["triton_sampling"] == "reference"
    faults_of("triton_ops").append(IndexError("boom"))
    request = one_request(engine)
    assert request.finish_reason is FinishReason.ERROR
    assert request.error is not None
    assert "your part triton_ops failed: IndexError: boom (labs/triton_ops/" in request.error
    assert one_request(engine).finish_reason is FinishReason.LENGTH


def test_the_table_shows_the_parts_of_the_backend_alone() -> None:
    engine = LLMEngine(model=str(TUTOR_PATH), backend="torch", device="cpu", num_blocks=16)
    assert not [part.lab for part in engine.parts if load_curriculum()[part.lab].is_kernel]


# --- on a GPU ---


@dataclass
class Case:
    folder: Path
    prompts: list[list[int]]
    expected: list[list[int]]

    def engine(self, backend: str, **settings: object) -> LLMEngine:
        # No more graphs than these prompts need: recording 256 sizes would take longer than the test.
        few = {"num_blocks": 512, "max_num_seqs": 24, "token_budget": 512}
        settings = {**few, "dtype": "float32", "mine": "none", **settings}
        try:
            return LLMEngine(model=str(self.folder), device="cuda", backend=backend, **settings)
        except KernelError as error:
            if find_nvcc() is not None:
                raise
            pytest.skip(error.message)


@pytest.fixture(scope="module", params=FAMILIES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    folder = TUTOR_PATH
    if request.param != "tutor":
        folder = tiny_model(request.param, tmp_path_factory.mktemp("models") / request.param)
    prompts = make_prompts(24, vocab=256)
    expected, margins = greedy(folder, prompts, MAX_TOKENS)
    decided = [i for i, margin in enumerate(margins) if margin > 10 * ROUNDING]
    assert len(decided) >= 12
    return Case(folder, [prompts[i] for i in decided], [expected[i] for i in decided])


BACKENDS = pytest.mark.parametrize("backend", ["torch", "triton", "cuda"])


@pytest.mark.gpu
@BACKENDS
def test_all_at_once_in_chunks_and_again_from_the_cache(backend: str, case: Case) -> None:
    engine = case.engine(backend, token_budget=64)
    assert run(engine, case.prompts, MAX_TOKENS) == case.expected
    assert run(engine, case.prompts, MAX_TOKENS) == case.expected


@pytest.mark.gpu
@BACKENDS
def test_whole_prompts_without_a_cache(backend: str, case: Case) -> None:
    engine = case.engine(backend, prefix_caching=False)
    assert run(engine, case.prompts, MAX_TOKENS) == case.expected


@pytest.mark.gpu
@BACKENDS
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_a_pool_so_small_that_blocks_are_swapped(backend: str, preemption: str, case: Case) -> None:
    swap_space = 0.01 if preemption == "swap" else 0.0
    engine = case.engine(backend, num_blocks=24, preemption=preemption, swap_space=swap_space,
                         max_num_seqs=16, watermark=0.0)  # fmt: skip
    assert run(engine, case.prompts, MAX_TOKENS) == case.expected


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({"backend": "triton"}, {"backend": "torch"}),
        ({"backend": "cuda"}, {"backend": "torch"}),
        ({"backend": "triton"}, {"backend": "triton", "graphs": "off"}),
    ],
    ids=["triton and torch", "cuda and torch", "padded and not"],
)
def test_answers_in_half_precision_part_at_near_ties_alone(
    ours: dict[str, str], theirs: dict[str, str]
) -> None:
    """The tutor in bfloat16: rounding differs from kernel to kernel. Where two answers part, both tokens
    are about as likely to transformers in float32."""
    prompts = make_prompts(24, vocab=256)
    common: Any = {"num_blocks": 512, "max_num_seqs": 24, "token_budget": 512, "mine": "none"}
    answers = [
        run(
            LLMEngine(model=str(TUTOR_PATH), dtype="bfloat16", device="cuda", **common, **settings),
            prompts,
            MAX_TOKENS,
        )
        for settings in (ours, theirs)
    ]
    parted = [
        (prompt + mine[:at], mine[at], other[at])
        for prompt, mine, other in zip(prompts, *answers, strict=True)
        for at in partings(mine, other)
    ]
    logits = last_logits(TUTOR_PATH, [beginning for beginning, _, _ in parted])
    gaps = [
        float((row[mine] - row[other]).abs() / row.abs().max())
        for row, (_, mine, other) in zip(logits, parted, strict=True)
    ]
    shown = ", ".join(f"{gap:.2%}" for gap in gaps)
    print(f"{len(parted)} of {len(prompts)} part; gaps by the largest logit: {shown}")
    assert all(gap < NEAR_TIE for gap in gaps)


def partings(mine: list[int], other: list[int]) -> list[int]:
    """Where two answers first differ; empty if nowhere."""
    differ = (at for at, pair in enumerate(zip(mine, other, strict=True)) if pair[0] != pair[1])
    return list(itertools.islice(differ, 1))


@pytest.mark.gpu
def test_forks_copy_blocks_on_every_backend(case: Case) -> None:
    params = SamplingParams(temperature=1.0, seed=1, n=3, max_tokens=8, ignore_eos=True)
    outputs = {}
    for backend in ("torch", "triton", "cuda"):
        engine = case.engine(backend)
        requests = engine.add_request(case.prompts[0], params)
        while engine.has_work:
            engine.step()
        outputs[backend] = [request.output_token_ids for request in requests]
    assert outputs["triton"] == outputs["torch"]
    assert outputs["cuda"] == outputs["torch"]
