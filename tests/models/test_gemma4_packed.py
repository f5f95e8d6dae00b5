"""Gemma 4 with packed weights runs on its own adapter, whichever of its products a tool has packed."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.engine.exact import Case, assert_empty, case_of, outputs, run
from tests.marks import nightly_but
from tests.models.halves import tiny_half
from tests.models.test_generic_packed import PRODUCT, WRITERS, check, write
from tests.models.test_packed import load
from yaie.models import ModelAdapter
from yaie.models.gemma4 import Gemma4Adapter
from yaie.models.generic import GenericAdapter
from yaie.models.schemes.words import WordScheme

Checkpoint = Callable[[str], Path]
ALL = re.compile(r"(_proj|per_layer_\w*(gate|projection))\.weight$")
"""Also what a token says to each layer: tools that pack every `nn.Linear` do."""


def packed_products(adapter: ModelAdapter) -> tuple[bool, bool]:
    """(whether attention and feed-forward parts are packed, whether what a token says is)."""
    assert isinstance(adapter, Gemma4Adapter)
    usual, of_tokens = [], []
    for layer in adapter.layers:
        usual += [layer.into, layer.output, layer.gate_up, layer.down]
        if layer.token_input is not None:
            of_tokens += [layer.token_input.gate, layer.token_input.project]
    if of_tokens:
        of_tokens.append(adapter.token_project)
    found = [{isinstance(one, WordScheme) for one in some} for some in (usual, of_tokens or usual)]
    assert [len(kinds) for kinds in found] == [1, 1]
    return found[0].pop(), found[1].pop()


@pytest.mark.parametrize(
    ("family", "name", "which", "of_tokens"),
    nightly_but(
        [("gemma4", "awq", PRODUCT, False), ("gemma4", "int8", ALL, True)],
        [
            ("gemma4", "int4", PRODUCT, False),
            ("gemma4", "awq", PRODUCT, False),
            ("gemma4", "gptq", PRODUCT, False),
            ("gemma4", "fp8-blocks", PRODUCT, False),
            ("gemma4", "int8", ALL, True),
            ("gemma4", "fp8-channel", ALL, True),
            ("gemma4-31b", "int4", PRODUCT, True),
            ("gemma4-12b", "awq", PRODUCT, True),
        ],
    ),
)
def test_logits_are_those_of_what_the_codes_stand_for(
    checkpoint: Checkpoint,
    tmp_path: Path,
    family: str,
    name: str,
    which: "re.Pattern[str]",
    of_tokens: bool,
) -> None:
    told, writer = WRITERS[name]
    source = checkpoint(family)
    loaded = check(*write(source, tmp_path, told, writer, which))
    assert packed_products(loaded.adapter) == (True, of_tokens)
    assert loaded.num_parameters == load(source).num_parameters


def test_greedy_tokens_are_those_of_transformers(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Together, cached, in chunks, and after preemption; windows give blocks back meanwhile."""
    told, writer = WRITERS["int4"]
    packed, right = write(checkpoint("gemma4"), tmp_path, told, writer)
    known = case_of(right, 2e-3, spare=24)
    case = Case(packed, known.prompts, known.expected)
    engine = case.engine()
    assert packed_products(engine.model.adapter) == (True, False)
    assert "blocks behind them go back" in engine.info.windows
    assert outputs(run(engine, case.prompts)) == case.expected
    assert outputs(run(engine, case.prompts)) == case.expected
    assert_empty(engine)
    chunks = case.engine(token_budget=16)
    assert outputs(run(chunks, case.prompts[:16])) == case.expected[:16]
    small = case.engine(num_blocks=22, max_num_seqs=16, watermark=0.0)
    requests = run(small, case.prompts)
    assert sum(request.num_preemptions for request in requests) >= 5
    assert outputs(requests) == case.expected


def test_what_a_borrowing_layer_would_need_is_passed_over(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    """Some checkpoints hold keys and values of these layers, packed like the others."""
    told, writer = WRITERS["int4"]
    packed, right = write(checkpoint("gemma4"), tmp_path, told, writer)
    tensors = load_file(packed / "model.safetensors")
    for name in [one for one in tensors if re.search(r"layers\.[01]\.self_attn\.[kv]_", one)]:
        layer = int(name.split(".")[2])
        tensors[name.replace(f"layers.{layer}.", f"layers.{layer + 2}.")] = tensors[name].clone()
    save_file(tensors, packed / "model.safetensors", metadata={"format": "pt"})
    assert packed_products(check(packed, right).adapter) == (True, False)


@pytest.mark.nightly
def test_the_text_half_of_one_for_images(tmp_path: Path) -> None:
    told, writer = WRITERS["int8"]
    told = {**told, "ignore": ["lm_head", "re:.*vision.*", "re:.*audio.*"]}
    inner = re.compile(r"^(?!.*(vision|audio)).*layers\..*_proj\.weight$")
    source = tiny_half("gemma4-shared", tmp_path / "source")
    loaded = check(*write(source, tmp_path, told, writer, inner))
    assert packed_products(loaded.adapter) == (True, False)


@pytest.mark.nightly
def test_with_experts_it_is_transformers_own_model(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Experts are stacked, and are multiplied out there."""
    told, writer = WRITERS["int4"]
    inner = re.compile(r"layers\.\d+\.(self_attn|mlp)\..*_proj\.weight$")
    loaded = check(*write(checkpoint("gemma4-26b"), tmp_path, told, writer, inner))
    assert isinstance(loaded.adapter, GenericAdapter)
