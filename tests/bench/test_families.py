"""The run over transformers' families, and the table that the book makes of it."""

import json
from pathlib import Path

import pytest

from book.tools.families import render_families
from yaie.bench.evidence import families
from yaie.core.errors import ModelError

RECORDED = json.loads(families.OUT.read_text("utf-8"))["families"]


def test_every_family_is_in_the_table_once() -> None:
    counts, _, names = render_families().partition("\n\n<details>")
    assert sum(int(line.split("|")[2]) for line in counts.splitlines()[2:]) == len(RECORDED)
    assert all(names.count(f"`{name}`") == 1 for name in RECORDED)


def test_a_refusal_is_quoted_without_its_frame() -> None:
    error = ModelError("the architecture X is not supported: it is round. What works: Llama.")
    assert families.reason(error) == "it is round"


def test_what_people_ask_for_is_served() -> None:
    for name in ("gemma3", "gemma3n", "gemma4", "mistral3", "qwen2_vl", "qwen3_vl", "qwen3_vl_moe"):
        assert RECORDED[name]["is"].startswith("half")
    own = (
        "llama mistral qwen2 qwen3 gpt2 gemma2 gemma3_text gemma4_text olmo2 olmo3 granite gpt_oss"
    )
    for name in own.split():
        assert RECORDED[name]["is"] == "own"
    for name in ("granitemoehybrid", "smollm3", "qwen3_moe", "mixtral"):
        assert RECORDED[name]["is"] == "generic"


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name, one in RECORDED.items() if one["is"] != "untried"])
def test_a_family_is_as_it_was_recorded(name: str, tmp_path: Path) -> None:
    found = families.tried(name, families.names()[name], tmp_path)
    assert found["is"] == RECORDED[name]["is"], found
