"""The tutor's sibling is trained by the same script: small, in the tutor's tokens, served as it is."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, Lfm2ForCausalLM

from book.tutor import corpus, train
from book.tutor.hybrid import (
    PERIOD,
    ShiftedConv,
    convolutions,
    hybrid_config,
    new_hybrid,
    shift_convolutions,
    shifted_sum,
)
from book.tutor.regularise import DroppingLinear, Regulariser
from yaie import LLMEngine, SamplingParams
from yaie.core.errors import ModelError
from yaie.models import tutor
from yaie.models.hub import find_model
from yaie.models.tutor import HYBRID_PATH, TUTOR_PATH

TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


def tiny(*, bias: bool = False) -> Lfm2ForCausalLM:
    torch.manual_seed(0)
    config = hybrid_config(10_000, bos_token_id=0, eos_token_id=3, pad_token_id=1)
    config.hidden_size, config.intermediate_size, config.conv_bias = 64, 48, bias
    config.num_attention_heads, config.num_key_value_heads = 2, 1
    config.num_hidden_layers, config.layer_types = len(PERIOD), list(PERIOD)
    return new_hybrid(config)


TOKENS = torch.arange(4, 44).view(2, 20)


def test_two_of_three_layers_are_convolutions_and_it_is_under_eight_megabytes() -> None:
    model = new_hybrid(hybrid_config(10_000, bos_token_id=0, eos_token_id=3, pad_token_id=1))
    assert model.config.layer_types == ["conv", "conv", "full_attention"] * 3
    assert len(convolutions(model)) == 6
    # The tokenizer, the log and the card lie beside the weights, in 0.4 MB.
    assert 2 * model.num_parameters() < 7_600_000


@pytest.mark.parametrize("bias", [False, True])
def test_shifted_inputs_give_what_the_library_gives(bias: bool) -> None:
    model = tiny(bias=bias)
    for convolution in convolutions(model) if bias else ():
        torch.nn.init.normal_(convolution.conv.bias)
    model(TOKENS).logits.square().mean().backward()
    expected, before = model(TOKENS).logits, [one.grad.clone() for one in model.parameters()]
    model.zero_grad()
    shift_convolutions(model)
    assert all(isinstance(one, ShiftedConv) for one in convolutions(model))
    got = model(TOKENS).logits
    got.square().mean().backward()
    assert torch.allclose(got, expected, atol=1e-5)
    for one, gradient in zip(model.parameters(), before, strict=True):
        torch.testing.assert_close(one.grad, gradient, rtol=1e-3, atol=1e-7)


def test_a_masked_row_is_the_library_s_own() -> None:
    model = tiny().eval()
    mask = torch.ones_like(TOKENS)
    mask[0, :5] = 0
    expected = model(TOKENS, attention_mask=mask).logits
    shift_convolutions(model)
    assert torch.equal(model(TOKENS, attention_mask=mask).logits, expected)


def test_no_token_sees_a_later_one() -> None:
    x, weight = torch.randn(1, 9, 4), torch.randn(4, 3)
    before = shifted_sum(x, weight, None)
    x[:, 5] += 1.0
    after = shifted_sum(x, weight, None)
    assert torch.equal(after[:, :5], before[:, :5])
    assert (after[:, 5:8] != before[:, 5:8]).all()
    assert torch.equal(after[:, 8:], before[:, 8:])


def test_dropout_reaches_convolutions_attention_and_feed_forward_networks() -> None:
    model = tiny()
    Regulariser(model, 0.5)
    dropping = [name for name, one in model.named_modules() if isinstance(one, DroppingLinear)]
    mixers = ["conv.out_proj", "conv.out_proj", "self_attn.out_proj"]
    expected = [
        f"{at}.{name}" for at, mixer in enumerate(mixers) for name in (mixer, "feed_forward.w2")
    ]
    assert [name.removeprefix("model.layers.") for name in dropping] == expected


def test_weights_of_the_other_architecture_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        train.parse_args(["--architecture", "lfm2", "--init", str(TUTOR_PATH)])
    assert "holds a llama" in capsys.readouterr().err


def test_each_architecture_has_a_folder_of_its_own() -> None:
    assert train.parse_args([]).out == TUTOR_PATH
    assert train.parse_args(["--architecture", "lfm2"]).out == HYBRID_PATH
    assert HYBRID_PATH != TUTOR_PATH


def test_it_has_a_name_and_missing_weights_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tutor, "HYBRID_PATH", tmp_path)
    with pytest.raises(
        ModelError, match=r"no weights in .* --architecture lfm2 .* yaie serve tutor"
    ):
        find_model("tutor-hybrid", None)
    (tmp_path / "model.safetensors").touch()
    found = find_model("tutor-hybrid", None)
    assert (found.name, found.folder, found.hub_id) == ("tutor-hybrid", tmp_path, None)


def test_what_a_dry_run_writes_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "SHARD_DIALOGUES", 20)
    monkeypatch.setattr(corpus, "CONTEXT_LENGTH", 128)
    how = ["--architecture", "lfm2", "--dry-run", "--processes", "1", "--mean", "--dropout", "0.1"]
    train.main([*how, "--out", str(tmp_path)])
    log = json.loads((tmp_path / "training_log.json").read_text(encoding="utf-8"))
    assert (log["architecture"], log["steps"], log["init"]) == ("lfm2", 3, False)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 8_000_000
    for name in TOKENIZER:
        assert (tmp_path / name).read_bytes() == (TUTOR_PATH / name).read_bytes()
    # Three steps teach it nothing but to repeat a token: shaken weights say more.
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.08 * torch.randn_like(weight))
    shaken = tmp_path / "shaken"
    model.save_pretrained(shaken)
    for name in TOKENIZER:
        shutil.copy(tmp_path / name, shaken)
    prompt = list(range(100, 140))
    engine = LLMEngine(model=str(shaken), num_blocks=64, threads=1, dtype="float32")
    try:
        [answer] = engine.generate([prompt], SamplingParams(temperature=0, max_tokens=16))
        written = model.generate(
            input_ids=torch.tensor([prompt]), do_sample=False, max_new_tokens=16
        )[0, len(prompt) :]
        assert answer == engine.tokenizer.decode(written.tolist())
        assert len(set(written.tolist())) > 8
    finally:
        engine.close()
