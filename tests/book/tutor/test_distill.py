"""What drafts for the tutor is trained from the tutor, and fits it."""

import itertools
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import LlamaForCausalLM

from book.tutor import corpus, distill, train
from book.tutor.mtp_head import MtpHead, rolled
from yaie.models.tutor import TUTOR_PATH

pytestmark = pytest.mark.nightly

MOST_BYTES = 2_000_000


def teacher() -> LlamaForCausalLM:
    """A tiny one of the tutor's vocabulary."""
    torch.manual_seed(0)
    config = train.tutor_config(bos_token_id=0, eos_token_id=3, pad_token_id=1)
    config.num_hidden_layers, config.hidden_size, config.intermediate_size = 1, 96, 32
    config.num_attention_heads, config.num_key_value_heads, config.head_dim = 2, 1, 16
    return LlamaForCausalLM(config)


@pytest.mark.parametrize("kind", ["draft", "mtp"])
def test_a_student_goes_on_from_given_weights(kind: str) -> None:
    tutor = LlamaForCausalLM.from_pretrained(TUTOR_PATH, dtype=torch.float32)
    folder = TUTOR_PATH.parent / kind
    args = distill.parse_args(["--kind", kind, "--init", str(folder), "--eager"])
    student = distill.distiller(tutor, args).model.state_dict()
    for name, weight in load_file(folder / "model.safetensors").items():
        assert torch.equal(student[name].cpu(), weight.float()), name


@pytest.mark.parametrize("kind", ["draft", "mtp"])
def test_a_dry_run_writes_weights_that_are_small(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "SHARD_DIALOGUES", 20)
    monkeypatch.setattr(corpus, "CONTEXT_LENGTH", 128)
    distill.main(["--kind", kind, "--out", str(tmp_path), "--dry-run", "--processes", "1"])
    assert (tmp_path / "model.safetensors").stat().st_size < MOST_BYTES
    log = json.loads((tmp_path / "distill_log.json").read_text(encoding="utf-8"))
    assert log["steps"] == 3
    assert len(log["agreement_by_depth"]) == {"draft": 1, "mtp": distill.DEPTHS}[kind]
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    tutor = json.loads((TUTOR_PATH / "config.json").read_text(encoding="utf-8"))
    assert config["vocab_size"] == tutor["vocab_size"]
    weights = load_file(tmp_path / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}


@pytest.mark.parametrize("kind", ["draft", "mtp"])
def test_a_student_comes_closer_to_its_teacher(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "LOG_EVERY", 10)
    args = distill.parse_args(["--kind", kind, "--steps", "60", "--lr", "0.01", "--eager"])
    student = distill.distiller(teacher(), args)
    before = [one.clone() for one in student.teacher.parameters()]
    torch.manual_seed(1)
    batch = (torch.randint(4, 200, (2, 24)), torch.ones(2, 24, dtype=torch.bool))
    student.fit(itertools.repeat(batch))
    assert student.curve[-1]["loss"] < 0.6 * student.curve[0]["loss"]
    assert all(map(torch.equal, before, student.teacher.parameters()))


def test_a_depth_is_what_rolling_token_by_token_gives() -> None:
    model = teacher().eval()
    torch.manual_seed(2)
    head = MtpHead(model.config).eval()
    tokens = torch.randint(4, 200, (1, 9))
    with torch.no_grad():
        states = model.model(input_ids=tokens).last_hidden_state[:, :-1]
        embedded = model.model.embed_tokens(tokens)[:, 1:]
        depths = list(rolled(head, states, embedded, model.model.norm, 3))
        for last in range(2, 8):  # the position at which the third depth is looked at
            known = last - 1  # positions of which the tutor's own states are known
            positions = torch.arange(known)
            out, own = head(states[:, :known], embedded[:, :known], positions, [])
            state, (keys, values) = model.model.norm(out)[:, -1:], own
            for depth in (1, 2):
                at = known - 1 + depth
                x = embedded[:, at : at + 1]
                state, (keys, values) = one_more(head, state, x, at, keys, values)
                state = model.model.norm(state)
                torch.testing.assert_close(state, depths[depth][:, at : at + 1])


def one_more(
    head: MtpHead,
    state: torch.Tensor,
    x: torch.Tensor,
    at: int,
    keys: torch.Tensor,
    values: torch.Tensor,
) -> tuple[torch.Tensor, tuple[torch.Tensor, torch.Tensor]]:
    """A single position behind keys and values that stand, as a cache would have it."""
    kept: list[torch.Tensor] = []

    def attended(q: torch.Tensor, depths: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
        k, v = torch.cat([keys, depths[-1][0]], dim=2), torch.cat([values, depths[-1][1]], dim=2)
        kept[:] = [k, v]
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(head, "_attended", attended)
        out, _ = head(state, x, torch.tensor([at]), [])
    return out, (kept[0], kept[1])
