"""A draft model and an MTP head: whatever they are worth, the output is what it is without them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from book.tutor import distill
from book.tutor.mtp_head import MtpHead, rolled
from tests.engine.drafting.test_speculation import same
from tests.engine.mixed import LONG, POOLS, add_all, run
from tests.marks import nightly_but
from tests.models.tiny import VOCAB, tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.batch import StepPlan
from yaie.core.errors import ConfigError, ModelError
from yaie.core.request import FinishReason
from yaie.core.step import StepResult
from yaie.engine.drafting.lookahead import AheadProposer

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
KINDS = ["itself", "another", "head"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.set_num_threads(1)
    return str(tiny_model("llama", tmp_path_factory.mktemp("models") / "llama"))


@pytest.fixture(scope="module")
def guessers(folder: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Settings of: a draft model that is always right, one that is mostly wrong, and a random head."""
    target = AutoModelForCausalLM.from_pretrained(folder)
    torch.manual_seed(3)
    with torch.no_grad():
        for weight in target.parameters():
            weight += 0.3 * weight.std() * torch.randn_like(weight)
    another, head = (tmp_path_factory.mktemp(name) for name in ("another", "head"))
    target.save_pretrained(another)
    distill.save(MtpHead(target.config), target, head)
    return {
        "itself": {"speculate": "draft", "draft_model": folder},
        "another": {"speculate": "draft", "draft_model": str(another)},
        "head": {"speculate": "mtp", "draft_model": str(head)},
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pool", nightly_but(["chunks", "swap", "no cache"], POOLS))
def test_tokens_texts_and_ends_equal_those_without(
    folder: str, guessers: dict[str, dict[str, Any]], pool: str, kind: str
) -> None:
    plain = LLMEngine(model=folder, **POOLS[pool])
    wanted = add_all(plain)
    texts = run(plain)
    engine = LLMEngine(model=folder, num_drafts=3, **guessers[kind], **POOLS[pool])
    requests = add_all(engine)
    assert run(engine) == texts
    same(requests, wanted)
    stats = engine.stats()
    assert stats["used_blocks"] == 0
    assert stats["draft_tokens"] > 20
    if POOLS[pool]["num_blocks"] == 11:
        assert stats["preemptions"] >= 1


@pytest.mark.parametrize("kind", KINDS)
def test_number_that_adapts_changes_no_token(
    folder: str, guessers: dict[str, dict[str, Any]], kind: str
) -> None:
    wanted = LLMEngine(model=folder, num_blocks=300).generate([LONG, LONG[5:30]], GREEDY)
    engine = LLMEngine(model=folder, num_blocks=300, num_drafts="auto", **guessers[kind])
    assert engine.generate([LONG, LONG[5:30]], GREEDY) == wanted
    assert engine.stats()["draft_tokens"] > 0


def test_a_model_that_is_always_right_has_every_draft_accepted(
    folder: str, guessers: dict[str, dict[str, Any]]
) -> None:
    engine = LLMEngine(model=folder, num_blocks=300, num_drafts=3, **guessers["itself"])
    engine.generate([LONG, LONG[5:30]], GREEDY)
    stats = engine.stats()
    assert stats["accepted_draft_tokens"] == stats["draft_tokens"]
    assert stats["steps"] <= 1 + 24 // 4


@pytest.mark.parametrize("kind", KINDS)
def test_aborts_disturb_no_one_else_and_leave_no_place(
    folder: str, guessers: dict[str, dict[str, Any]], kind: str
) -> None:
    quiet = LLMEngine(model=folder, num_blocks=300)
    wanted = add_all(quiet)
    run(quiet)
    engine = LLMEngine(model=folder, num_blocks=300, num_drafts=2, **guessers[kind])
    requests = add_all(engine)
    doomed = requests[::3]
    run(engine, lambda step: step <= len(doomed) and engine.abort(doomed[step - 1].request_id))
    for request, other in zip(requests, wanted, strict=True):
        if request.finish_reason is not FinishReason.ABORT:
            assert request.token_ids == other.token_ids
    assert any(request.finish_reason is FinishReason.ABORT for request in doomed)
    assert engine.stats()["used_blocks"] == 0


def test_the_head_drafts_as_it_was_trained(
    folder: str, guessers: dict[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a prompt that is computed in chunks, and behind drafts that were rejected."""
    engine = LLMEngine(model=folder, num_blocks=300, num_drafts=3, **guessers["head"])
    seen: list[tuple[list[int], list[int]]] = []
    take = AheadProposer.take

    def noted(proposer: AheadProposer, plan: StepPlan, result: StepResult) -> None:
        made = result.extras.get("proposals", {"rows": [], "tokens": []})
        for row, own in zip(made["rows"], np.array(made["tokens"]).tolist(), strict=True):
            seen.append(([*plan.scheduled[row].request.token_ids, *result.token_ids[0]], own))
        take(proposer, plan, result)

    monkeypatch.setattr(AheadProposer, "take", noted)
    engine.generate([LONG[:20]], SamplingParams(temperature=0, max_tokens=10, ignore_eos=True))
    assert len(seen) >= 5
    target = AutoModelForCausalLM.from_pretrained(folder).eval()
    head = trained(target, guessers["head"]["draft_model"])
    with torch.no_grad():
        for text, own in seen:
            assert own == drafts_of(target, head, text, len(own))


def trained(target: Any, folder: str) -> MtpHead:
    from safetensors.torch import load_file

    head = MtpHead(target.config)
    head.load_state_dict(load_file(Path(folder) / "model.safetensors"))
    return head.float().eval()


def drafts_of(target: Any, head: MtpHead, text: list[int], count: int) -> list[int]:
    """What the head, as it is trained, says behind a text whose last token has no state yet."""
    drafts: list[int] = []
    for depth in range(count):
        tokens = torch.tensor([[*text, *drafts]])
        known = target.model(input_ids=torch.tensor([text[:-1]])).last_hidden_state
        states = torch.nn.functional.pad(known, (0, 0, 0, depth))
        embedded = target.model.embed_tokens(tokens[:, 1:])
        *_, last = rolled(head, states, embedded, target.model.norm, depth + 1)
        drafts.append(int(target.lm_head(last[0, -1]).argmax()))
    return drafts


def test_what_cannot_guess_is_refused(folder: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs draft_model"):
        LLMEngine(model=folder, num_blocks=20, speculate="draft")
    with pytest.raises(ConfigError, match="is no head"):
        LLMEngine(model=folder, num_blocks=20, speculate="mtp", draft_model=folder)
    with pytest.raises(ConfigError, match="has another vocabulary"):
        LLMEngine(num_blocks=20, speculate="draft", draft_model=folder)
    with pytest.raises(ConfigError, match="has no effect here"):
        LLMEngine(model=folder, num_blocks=20, speculate="ngram", draft_model=folder)
    with pytest.raises(ModelError):
        LLMEngine(model=folder, num_blocks=20, speculate="draft", draft_model=str(tmp_path))
    assert LLMEngine(num_blocks=20).model.adapter.vocab_size != VOCAB
