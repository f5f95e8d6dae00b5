"""A draft model whose weights are packed beside a plain one, and the other way round."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from gguf import GGMLQuantizationType

from book.tutor import distill
from book.tutor.mtp_head import MtpHead
from tests.models.gguf.tiny_ggufs import all_as, write_gguf
from tests.models.test_formats import in_fp8, write
from tests.models.test_packed import model_of, rounded
from tests.models.tiny import FAMILIES, tiny_model, write_model
from yaie import LLMEngine, SamplingParams
from yaie.models.rounding import Recipe

GREEDY = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)
PROMPTS = [[9, 8, 7, 30, 31, 32], [100, 5]]


def fp8(source: Path, target: Path) -> None:
    told = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [16, 16]}
    write(source, target, told, in_fp8(16, 16))


KINDS: dict[str, Callable[[Path, Path], object]] = {
    "int4": lambda source, target: rounded(source, target, Recipe(4, 16, gptq=False)),
    "int8": lambda source, target: rounded(source, target, Recipe(8, 16, gptq=False)),
    "fp8": fp8,
}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return tiny_model("llama", tmp_path_factory.mktemp("models") / "llama")


@pytest.mark.parametrize("kind", KINDS)
def test_each_model_of_a_pair_is_multiplied_by_its_own_scheme(
    plain: Path, tmp_path: Path, kind: str
) -> None:
    KINDS[kind](plain, tmp_path / "packed")
    for target, draft in ((plain, tmp_path / "packed"), (tmp_path / "packed", plain)):
        alone = LLMEngine(model=str(target), num_blocks=60).generate(PROMPTS, GREEDY)
        drafting = {"speculate": "draft", "draft_model": str(draft), "num_drafts": 3}
        engine = LLMEngine(model=str(target), num_blocks=60, **drafting)
        assert engine.generate(PROMPTS, GREEDY) == alone
        assert engine.stats()["accepted_draft_tokens"] > 0


@pytest.mark.parametrize("kind", ["int8", "gguf"])
def test_a_plain_head_drafts_for_a_packed_model(plain: Path, tmp_path: Path, kind: str) -> None:
    """A GGUF packs the table, too, that the head looks tokens up in."""
    packed = tmp_path / f"packed.{kind}"
    if kind == "gguf":
        config = FAMILIES["llama"]()
        config.intermediate_size = 128  # whole blocks
        plain = write_model(config, tmp_path / "wide")
        write_gguf(plain, packed, all_as(GGMLQuantizationType.Q8_0))
    else:
        KINDS[kind](plain, packed)
    original = model_of(plain)
    distill.save(MtpHead(original.config), original, tmp_path / "head")
    alone = LLMEngine(model=str(packed), num_blocks=60).generate(PROMPTS, GREEDY)
    drafting = {"speculate": "mtp", "draft_model": str(tmp_path / "head"), "num_drafts": 3}
    engine = LLMEngine(model=str(packed), num_blocks=60, **drafting)
    assert engine.generate(PROMPTS, GREEDY) == alone
    assert engine.stats()["draft_tokens"] > 0
