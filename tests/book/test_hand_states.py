"""The worked examples of short convolutions, of the delta rule and of chunks, computed again; and what
the article says of memory."""

import re

import numpy as np
import pytest
import torch
from torch import Tensor

from book.tools.exercises import MODELS as FILE
from solutions import state_cache
from tests.book.test_hand_tables import _below, _words, table
from yaie.backends.states.naive import NaiveStateOps
from yaie.backends.states.torch import TorchStateOps
from yaie.core.compat import tomllib
from yaie.core.contracts.rollback import Kept, Verified
from yaie.core.contracts.states import StateBatch, StateTensor
from yaie.worker.sizing import slot_bytes, unsettled_bytes

PAGE = "state-cache"
MODELS = tomllib.loads(FILE.read_text("utf-8"))["models"]
HYBRIDS = {
    "LFM2-1.2B": "lfm2_1b",
    "Qwen3.5-4B": "qwen35_4b",
    "Granite 4.0-H Micro": "granite4_h_micro",
}


def vectors(cell: str) -> Tensor:
    """Those of a cell: "(6.4, 6), (-4.8, 8)"."""
    found = re.findall(r"\(([^)]*)\)", cell)
    return torch.tensor([[float(number) for number in one.split(",")] for one in found])


def numbers(cell: str) -> list[float]:
    return [float(one) for one in cell.split(",")]


def one_sequence(length: int, *, is_fresh: bool = True) -> StateBatch:
    starts = torch.tensor([0, length], dtype=torch.int32)
    return StateBatch([length], starts, torch.tensor([0]), torch.tensor([is_fresh]))


class Tokens:
    """The three of the table, as the contract has them: one head of two numbers."""

    def __init__(self) -> None:
        self.rows = _below(PAGE, "| token | $\\alpha$ |")
        decays = torch.tensor([float(row[1]) for row in self.rows])
        self.k, self.v = (torch.stack([vectors(row[at]) for row in self.rows]) for at in (2, 3))
        self.beta = torch.tensor([[float(row[4])] for row in self.rows])
        self.log_decay = decays.log()[:, None]

    def given(self, first: int, end: int) -> tuple[Tensor, ...]:
        """Queries are the keys: what each reads after its own token."""
        parts = (self.k, self.k, self.v, self.log_decay, self.beta)
        return tuple(part[first:end] for part in parts)


@pytest.mark.parametrize("cut", [0, 1, 2, 3, 4])
def test_a_convolution_has_the_same_outputs_wherever_its_text_is_cut(cut):
    rows = table(PAGE, "token")
    inputs = torch.tensor([[float(row[1])] for row in rows])
    weight, pool = torch.tensor([[1.0, 2, 4]]), torch.full((1, 1, 2), torch.nan)
    out = []
    for first, end in ((0, cut), (cut, 4)):
        if end > first:
            batch = one_sequence(end - first, is_fresh=first == 0)
            out += (
                TorchStateOps(state_cache)
                .short_conv(inputs[first:end], weight, None, pool, batch)
                .tolist()
            )
            assert pool[0, 0].tolist() == numbers(rows[end - 1][4])
    assert [one for [one] in out] == [float(row[3]) for row in rows]
    assert [numbers(row[2]) for row in rows[1:]] == [numbers(row[4]) for row in rows[:-1]]
    assert "With weights of 1, 2 and 4" in _words(PAGE)


@pytest.mark.parametrize(
    "ops", [NaiveStateOps(), TorchStateOps(state_cache)], ids=["naive", "torch"]
)
@pytest.mark.parametrize("cut", [0, 1, 2, 3])
def test_three_tokens_leave_the_matrices_of_the_table(ops, cut):
    tokens = Tokens()
    pool = torch.full((1, 1, 2, 2), torch.nan)
    for first, end in ((0, cut), (cut, 3)):
        if end > first:
            batch = one_sequence(end - first, is_fresh=first == 0)
            ops.gated_delta_rule(*tokens.given(first, end), pool, batch)
            torch.testing.assert_close(pool[0, 0], vectors(tokens.rows[end - 1][7]))


def test_what_is_read_and_written_is_as_in_the_table():
    tokens = Tokens()
    state = torch.zeros(2, 2)
    for row, k, v, beta, log_decay in zip(
        tokens.rows, tokens.k[:, 0], tokens.v[:, 0], tokens.beta, tokens.log_decay, strict=True
    ):
        state = state * log_decay.exp()
        torch.testing.assert_close(state.T @ k, vectors(row[5])[0])
        torch.testing.assert_close(beta * (v - state.T @ k), vectors(row[6])[0])
        state = state + torch.outer(k, vectors(row[6])[0])
    second = vectors(tokens.rows[1][7])
    torch.testing.assert_close(second.T @ tokens.k[1, 0], torch.tensor([0.0, 10]))
    assert (second.T @ tokens.k[0, 0]).tolist() == pytest.approx([6.4, 6])
    assert "reads (6.4, 6) where it had written (10, 0)" in _words(PAGE)


def test_the_triangle_is_solved_as_in_the_table():
    tokens = Tokens()
    rows = table(PAGE, "row")
    k, v, beta = tokens.k[:, 0], tokens.v[:, 0], tokens.beta
    logs = tokens.log_decay[:, 0]
    left = torch.tensor(
        [[float(logs[s + 1 : t + 1].sum().exp()) for s in range(3)] for t in range(3)]
    )
    system = (beta * (k @ k.T) * left).tril(-1) + torch.eye(3)
    shown = torch.tensor([[float(cell) for cell in row[1:4]] for row in rows])
    torch.testing.assert_close(system, shown)
    wanted = torch.cat([vectors(row[4]) for row in rows])
    torch.testing.assert_close(beta * v, wanted)
    written = torch.linalg.solve_triangular(system, wanted, upper=False)
    torch.testing.assert_close(written, torch.cat([vectors(row[5]) for row in rows]))
    after = sum(left[2, s] * torch.outer(k[s], written[s]) for s in range(3))
    torch.testing.assert_close(after, vectors(tokens.rows[2][7]))
    assert "which is (4.1, 4), (-2.4, 4) again" in _words(PAGE)


def test_all_three_as_one_chunk_are_the_last_row_of_the_table():
    tokens = Tokens()
    given = [one[None] for one in tokens.given(0, 3)]
    out, after = state_cache.delta_chunk(*given, torch.zeros(1, 1, 2, 2))
    torch.testing.assert_close(after[0, 0], vectors(tokens.rows[2][7]))
    torch.testing.assert_close(out[0, 1, 0], torch.tensor([0.0, 10]))


def test_a_rejected_draft_leaves_the_tail_of_the_tokens_that_counted():
    rows = {row[0]: numbers(row[1]) for row in _below(PAGE, "| | tail |")}
    pool, weight = torch.tensor([[rows["before the step"]]]), torch.tensor([[1.0, 2, 4]])
    x, slots, after = torch.tensor([[2.0], [4], [3], [7]]), torch.tensor([0]), []
    ops = TorchStateOps(state_cache)

    def compute(x: Tensor, batch: StateBatch) -> Tensor:
        out = ops.short_conv(x, weight, None, pool, batch)
        after.append(pool[0, 0].tolist())
        return out

    step = one_sequence(4, is_fresh=False)
    state_cache.run_ahead(lambda: compute(x, step), pool, slots, slots)
    assert pool[0, 0].tolist() == rows["put back"] == rows["before the step"]
    lens, drafts, gained, slot = (np.array([number]) for number in (4, 3, 2, 0))
    verified = Verified(lens, drafts, gained, slot, np.array([False]))
    state_cache.settle([Kept(compute, [x])], verified, torch.from_numpy)
    assert after == [rows["after the step"], rows["settled"]]
    assert "computes the token 2 and the drafts 4, 3, 7." in _words(PAGE)


def test_what_tokens_bring_is_far_smaller_than_states():
    model = MODELS["qwen35_4b"]
    tail = StateTensor((model["tail_channels"], model["tail"]), torch.bfloat16)
    sides = (model["state_heads"], model["state_rows"], model["state_columns"])
    layers = [(tail, StateTensor(sides, torch.float32))] * model["state_layers"]
    assert slot_bytes(layers) == state_bytes(model)
    brought = unsettled_bytes(layers, 1, 9) - unsettled_bytes(layers, 1, 8)
    assert f"= {brought / 1e6:.1f} MB a token" in _words(PAGE)
    assert "five states of 51.5 MB" in _words(PAGE)


def state_bytes(model: dict) -> int:
    matrices = model.get("state_heads", 0) * model.get("state_rows", 0)
    layer = (
        4 * matrices * model.get("state_columns", 0) + 2 * model["tail_channels"] * model["tail"]
    )
    return model["state_layers"] * layer


@pytest.mark.parametrize("row", _below(PAGE, "| | layers with attention |"), ids=lambda row: row[0])
def test_a_row_of_the_table_of_memory(row):
    model = MODELS[HYBRIDS[row[0]]]
    layer = 2 * model["kv_heads"] * model["head_dim"] * 2
    attending, all_layers = (
        model["attention_layers"],
        model["attention_layers"] + model["state_layers"],
    )
    assert row[1] == f"{attending} of {all_layers}"
    assert row[2] == f"{attending * layer // 1024} KiB"
    state = state_bytes(model)
    assert float(row[3].removesuffix(" MB")) == pytest.approx(state / 1e6, abs=0.05)
    million = 2**20
    assert row[4] == f"{(attending * layer * million + state) / 1e9:.1f} GB"
    assert row[5] == f"{all_layers * layer * million / 1e9:.1f} GB"


def test_where_a_hybrid_keeps_less_and_what_its_checkpoints_cost():
    text = _words(PAGE)
    crossing = {}
    for name, key in HYBRIDS.items():
        model = MODELS[key]
        layer = 2 * model["kv_heads"] * model["head_dim"] * 2
        crossing[name] = state_bytes(model) / (model["state_layers"] * layer)
    assert {name: round(one) for name, one in crossing.items()} == {
        "LFM2-1.2B": 4,
        "Qwen3.5-4B": 524,
        "Granite 4.0-H Micro": 1037,
    }
    assert "Below 524 tokens Qwen3.5-4B keeps more" in text
    assert "For Granite that point is at 1,037 tokens" in text
    qwen = MODELS["qwen35_4b"]
    state, kv = state_bytes(qwen), 8 * 2 * 4 * 256 * 2
    # One checkpoint for each 524 tokens, beside keys and values, is attention in all layers.
    assert kv + state / crossing["Qwen3.5-4B"] == 32 * 2 * 4 * 256 * 2
    assert f"{state // 24:,} bytes, a token's keys and values in one layer 4,096" in text
    assert round(state / kv) == 1572
    assert "as much as its keys and values of 1,572 tokens" in text
    assert "103 MB for a sequence" in text
    assert 2 * state / 1e6 == pytest.approx(103, abs=0.1)
    assert state / (16 * kv) == pytest.approx(98.25)
    assert "make the cache a hundred times as large" in text


def test_what_a_step_s_states_are_beside_the_weights():
    """Weights of Qwen3.5-4B's text model, counted from its shape: hidden 2,560, features 9,216."""
    hidden, features, vocabulary = 2560, 9216, 248_320
    linear = hidden * (8192 + 4096 + 2 * 32) + 4096 * hidden + 4 * 8192
    attention = hidden * (2 * 16 * 256 + 2 * 4 * 256) + 16 * 256 * hidden
    weights = 24 * linear + 8 * attention + 32 * 3 * hidden * features + vocabulary * hidden
    assert weights == pytest.approx(4.2e9, rel=0.01)
    assert 2 * weights / (2 * state_bytes(MODELS["qwen35_4b"])) == pytest.approx(82, abs=0.5)
    assert "At 82 requests that is as much as the weights" in _words(PAGE)


def test_blocks_of_a_page_that_holds_either_have_528_tokens():
    state = state_bytes(MODELS["qwen35_4b"]) // 24
    assert -(-state // (16 * 4096)) * 16 == 528
    assert 1488 == 1500 // 16 * 16 == 93 * 16
    assert "The attention layers have 93 whole blocks of 16" in _words(PAGE)
