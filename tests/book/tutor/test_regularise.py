"""Dropout acts in training and ends with it; the mean is one of weights; first words count more."""

import pytest
import torch
from transformers import LlamaForCausalLM

from book.tutor import train
from book.tutor.regularise import GONE_AT, MEAN_DECAY, DroppingLinear, Regulariser, first_words


def tiny() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = train.tutor_config(bos_token_id=0, eos_token_id=3, pad_token_id=1)
    config.num_hidden_layers, config.hidden_size, config.intermediate_size = 2, 32, 48
    config.num_attention_heads, config.num_key_value_heads, config.head_dim = 2, 1, 16
    return LlamaForCausalLM(config)


TOKENS = torch.arange(4, 24)[None]


def test_dropout_changes_a_training_step_and_no_answer() -> None:
    model = tiny()
    model.eval()
    before = model(TOKENS).logits
    names = set(model.state_dict())
    regulariser = Regulariser(model, 0.5)
    regulariser.before_step(0.0)
    assert set(model.state_dict()) == names
    assert torch.equal(model(TOKENS).logits, before)
    model.train()
    assert not torch.allclose(model(TOKENS).logits, before, atol=1e-3)
    regulariser.before_step(GONE_AT)
    assert torch.allclose(model(TOKENS).logits, before, atol=1e-5)


def test_what_is_not_dropped_is_scaled() -> None:
    layer = torch.nn.Linear(4, 4000)
    torch.nn.init.ones_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    layer.__class__ = DroppingLinear
    layer.share = torch.tensor(0.25)
    out = layer(torch.ones(4))
    assert out.unique().tolist() == pytest.approx([0.0, 4 / 0.75])
    assert (out == 0).float().mean() == pytest.approx(0.25, abs=0.04)


def test_without_dropout_the_model_stays_as_it_is() -> None:
    model = tiny()
    Regulariser(model, 0.0)
    assert not any(isinstance(module, DroppingLinear) for module in model.modules())


def test_the_mean_follows_the_weights_of_the_last_half() -> None:
    model = tiny()
    regulariser = Regulariser(model, 0.0)
    weight = model.model.norm.weight
    regulariser.after_step(0.2)
    assert regulariser.mean == []
    regulariser.after_step(0.6)
    with torch.no_grad():
        weight.add_(1.0)
    regulariser.after_step(0.7)
    regulariser.use_mean()
    assert weight.mean().item() == pytest.approx(2 - MEAN_DECAY, abs=1e-5)


def test_an_answer_begins_behind_what_is_not_learned() -> None:
    learn = torch.tensor([[0, 1, 1, 0, 0, 1, 0], [1, 1, 0, 1, 0, 0, 1]]).bool()
    begins = torch.tensor([[0, 1, 0, 0, 0, 1, 0], [1, 0, 0, 1, 0, 0, 1]]).bool()
    assert torch.equal(first_words(learn), begins)


def test_the_loss_is_that_of_the_learned_tokens_and_first_words_count_more() -> None:
    model = tiny()
    learn = torch.zeros_like(TOKENS, dtype=torch.bool)
    learn[0, 5:9] = True
    logits = model(TOKENS).logits[0, 4:8]
    losses = torch.nn.functional.cross_entropy(logits, TOKENS[0, 5:9], reduction="none")
    plain = train.loss_of(model, model.model, TOKENS, learn)
    assert plain.item() == pytest.approx(losses.mean().item(), rel=1e-5)
    counts = torch.tensor([3.0, 1.0, 1.0, 1.0])
    weighed = train.loss_of(model, model.model, TOKENS, learn, first=3.0)
    assert weighed.item() == pytest.approx(((losses * counts).sum() / 6).item(), rel=1e-5)
