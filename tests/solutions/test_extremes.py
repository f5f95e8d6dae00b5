"""What nobody means but somebody sends."""

from collections.abc import Sequence

import pytest
import torch

from grader.kit.cost import count_calls
from solutions.engine import Detokenizer, StopChecker
from solutions.sampler import Sampler
from yaie.core.batch import SamplingBatch

LOGITS = torch.tensor([[1.0, 2.0, 3.0, -1.0], [-9.0, -2.0, -3.0, -4.0], [80.0, 0.0, 79.0, 1.0]])


def draw(**columns: float) -> list[int]:
    """One token for each row of LOGITS, with the same parameters for all."""
    values = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0} | columns
    rows = {name: torch.full((3,), value) for name, value in values.items()}
    rows["top_k"] = rows["top_k"].long()
    flags = {f"any_{name}": bool(name in columns) for name in ("top_k", "top_p", "min_p")}
    zeros = torch.zeros(3, dtype=torch.int64)
    batch = SamplingBatch(**rows, seeds=zeros, steps=zeros, all_greedy=False, **flags)  # type: ignore[arg-type]
    return Sampler().sample(LOGITS.clone(), batch).tolist()


@pytest.mark.parametrize(
    "columns",
    [
        {"temperature": 1e-3},
        {"temperature": 1e-30},
        {"temperature": 1e-50},  # 0 in float32
        {"top_p": 1e-30},
        {"top_p": 1e-50},
        {"top_k": 1},
        {"min_p": 1.0},
    ],
)
def test_narrowest_parameters_leave_the_best_token(columns: dict[str, float]) -> None:
    assert draw(**columns) == [2, 1, 0]


@pytest.mark.parametrize("temperature", [1e-39, 1e-42, 1e-45])
def test_denormal_temperature_leaves_the_best_token(temperature: float) -> None:
    assert draw(temperature=temperature) == [2, 1, 0]


@pytest.mark.parametrize("columns", [{"top_p": 1 - 1e-12}, {"top_k": 2**62}, {"min_p": 1e-50}])
def test_widest_parameters_change_nothing(columns: dict[str, float]) -> None:
    assert draw(**columns) == draw()


def utf8(token_ids: Sequence[int]) -> str:
    return bytes(token_ids).decode(errors="replace")


@pytest.mark.parametrize("byte", [0x80, 0xE3, 0xFF])
def test_endless_broken_bytes_join_to_their_text(byte: int) -> None:
    detokenizer = Detokenizer(utf8)
    ids = [byte] * 50
    assert "".join(map(detokenizer.push, ids)) + detokenizer.flush() == utf8(ids)


def test_broken_bytes_are_all_there_though_some_begin_a_character() -> None:
    detokenizer = Detokenizer(utf8)
    ids = [0x61, *[0xC3] * 11, 0xF0, 0xC3, 0xF0, 0xA9, 0xA9, 0x61]
    assert "".join(map(detokenizer.push, ids)) + detokenizer.flush() == utf8(ids)


def test_endless_broken_bytes_cost_the_same_for_each() -> None:
    widths: list[int] = []

    def decode(token_ids: Sequence[int]) -> str:
        widths.append(len(token_ids))
        return utf8(token_ids)

    detokenizer = Detokenizer(decode)
    for _ in range(500):
        detokenizer.push(0x80)
    for _ in range(5):
        detokenizer.push(ord("a"))
    assert max(widths) <= 20


@pytest.mark.parametrize("text", ["abcdefgh", "aaaaaaaa"])
def test_checking_a_letter_costs_no_more_late_than_early(text: str) -> None:
    checker = StopChecker(["aaaaaaab", "b" * 30])

    def push_all() -> None:
        for letter in text * 5:
            checker.push(letter)

    early = count_calls(push_all)
    for _ in range(20):
        push_all()
    assert count_calls(push_all) <= 1.2 * early
