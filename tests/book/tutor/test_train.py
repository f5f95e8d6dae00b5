"""Training goes on from given weights, by steps or by the clock, and writes a model that loads."""

import itertools
import json
import time
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer

from book.tutor import corpus, train
from book.tutor.tokenizer import CHAT_TEMPLATE
from yaie.models.tutor import TUTOR_PATH

pytestmark = pytest.mark.nightly


def test_the_learning_rate_rises_and_falls_to_zero() -> None:
    rates = [train.learning_rate(step / 1000, 2.0) for step in range(1001)]
    assert 0 < rates[0] < 0.2
    assert max(rates) == pytest.approx(2.0, abs=0.01)
    assert rates[-1] == pytest.approx(0.0, abs=1e-9)
    peak = rates.index(max(rates))
    assert 25 <= peak <= 35
    assert all(first >= second for first, second in itertools.pairwise(rates[peak:]))


def test_a_stream_writes_the_shards_of_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "SHARD_DIALOGUES", 40)
    tokenizer = Tokenizer.from_file(str(TUTOR_PATH / "tokenizer.json"))
    stream = corpus.ShardStream(tokenizer, seed=2, processes=2, ahead=3)
    try:
        first, rest = stream.take(1), stream.take(2)
        assert stream.taken == 3
    finally:
        stream.close()
    whole = corpus.build_corpus(tokenizer, shards=3, seed=2, processes=1)
    assert (first.tokens == whole.tokens[: len(first.tokens)]).all()
    assert (rest.learn == whole.learn[len(first.learn) :]).all()


def test_a_dry_run_goes_on_from_given_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus, "SHARD_DIALOGUES", 20)
    monkeypatch.setattr(corpus, "CONTEXT_LENGTH", 128)
    train.main(["--init", str(TUTOR_PATH), "--out", str(tmp_path), "--dry-run", "--processes", "1"])
    log = json.loads((tmp_path / "training_log.json").read_text(encoding="utf-8"))
    assert log["init"]
    assert log["steps"] == 3
    before = AutoModelForCausalLM.from_pretrained(TUTOR_PATH, dtype=torch.float32)
    after = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    change = (after.model.embed_tokens.weight - before.model.embed_tokens.weight).abs().mean()
    assert 0 < change < 0.01
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.chat_template == CHAT_TEMPLATE
    assert tokenizer.get_vocab() == AutoTokenizer.from_pretrained(TUTOR_PATH).get_vocab()


def test_the_clock_ends_a_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "LOG_EVERY", 1)
    config = train.tutor_config(bos_token_id=0, eos_token_id=3, pad_token_id=1)
    config.num_hidden_layers = 1
    trainer = train.Trainer(
        train.LlamaForCausalLM(config), train.parse_args(["--batch", "1", "--eager"])
    )
    batch = (torch.randint(4, 4000, (1, 16)), torch.ones(1, 16, dtype=torch.bool))
    start = time.perf_counter()
    steps = trainer.fit(itertools.repeat(batch), deadline=start + 1.0)
    assert steps >= 1
    assert [entry["step"] for entry in trainer.curve] == list(range(1, steps + 1))
    assert time.perf_counter() - start >= 1.0
