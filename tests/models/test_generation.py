"""What a generation config says is honoured, and a bad one does no harm to requests."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from yaie.core.errors import ModelError
from yaie.models.generation import eos_token_ids, read_generation_config, sampling_defaults


def test_a_model_without_the_file_has_no_recommendations(tmp_path: Path) -> None:
    assert read_generation_config(tmp_path) == {}
    assert sampling_defaults({}) == {}


def test_do_sample_false_means_greedy() -> None:
    assert sampling_defaults({"do_sample": False, "temperature": 0.7}) == {"temperature": 0.0}


def test_recommended_values_become_the_defaults() -> None:
    generation = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20, "foo": 1}
    assert sampling_defaults(generation) == {"temperature": 0.6, "top_p": 0.95, "top_k": 20}


@pytest.mark.parametrize("value", [-1.0, "hot", None])
def test_a_value_that_cannot_be_honoured_is_left_out(value: object) -> None:
    assert sampling_defaults({"temperature": value, "top_p": 0.5}) == {"top_p": 0.5}


def test_every_way_of_naming_the_end_counts() -> None:
    config = SimpleNamespace(eos_token_id=[4, 5])
    assert eos_token_ids({"eos_token_id": 3}, config, 6, 10) == {3, 4, 5, 6}
    assert eos_token_ids({}, SimpleNamespace(), None, 10) == frozenset()
    assert eos_token_ids({}, SimpleNamespace(eos_token_id=2), 1, 2) == {1}


@pytest.mark.parametrize("text", ["{", "[1]", json.dumps("x")])
def test_a_broken_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(text)
    with pytest.raises(ModelError, match="generation_config"):
        read_generation_config(tmp_path)
