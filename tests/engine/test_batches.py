"""What the runner hands to the device: block tables, and sampling parameters."""

import random

import pytest
import torch

from yaie.core.batch import ScheduledRequest
from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.engine.block_table_mirror import BlockTableMirror
from yaie.engine.sampling import SamplingBatchBuilder, resolve_seed


def scheduled(request: Request, table: list[int]) -> ScheduledRequest:
    return ScheduledRequest(request, 0, 1, table, [0], True)


def make_request(name: str, prompt: list[int] | None = None, **params: float) -> Request:
    return Request(name, list(prompt or [1]), SamplingParams(**params))  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(5))
def test_the_mirror_shows_every_table_whatever_happened_to_it(seed: int) -> None:
    rng = random.Random(seed)
    mirror = BlockTableMirror(num_rows=8, max_blocks=12)
    requests = [make_request(f"r{i}") for i in range(20)]
    tables: dict[Request, list[int]] = {request: [] for request in requests}
    for _ in range(300):
        chosen = rng.sample(requests, rng.randint(1, 8))
        for request in chosen:
            event = rng.random()
            if event < 0.1:  # preempted and back, or pointed at other blocks
                tables[request] = [rng.randrange(99) for _ in range(rng.randint(0, 12))]
            elif event < 0.6 and len(tables[request]) < 12:
                tables[request].append(rng.randrange(99))
        width = max(1, max(len(tables[request]) for request in chosen))
        rows = mirror.rows([scheduled(r, tables[r]) for r in chosen], width)
        for request, row in zip(chosen, rows.tolist(), strict=True):
            assert row[: len(tables[request])] == tables[request]


@pytest.fixture
def builder() -> SamplingBatchBuilder:
    return SamplingBatchBuilder(vocab_size=10, device=torch.device("cpu"))


def test_parameters_become_one_row_for_each_request(builder: SamplingBatchBuilder) -> None:
    requests = [make_request("a", temperature=0.5, top_k=-1), make_request("b", top_p=0.9, top_k=3)]
    batch = builder.build(requests)
    assert batch.temperature.tolist() == [0.5, 1.0]
    assert batch.top_k.tolist() == [0, 3]
    assert batch.top_p.tolist() == pytest.approx([1.0, 0.9])
    assert (batch.all_greedy, batch.any_top_k, batch.any_top_p, batch.any_min_p) == (
        False,
        True,
        True,
        False,
    )
    assert batch.penalties is None


def test_a_step_is_the_index_of_the_token_to_draw(builder: SamplingBatchBuilder) -> None:
    requests = [make_request("a"), make_request("b")]
    assert builder.build(requests).steps.tolist() == [0, 0]
    requests[1].token_ids.append(4)
    assert builder.build(requests).steps.tolist() == [0, 1]
    assert builder.build(requests[1:]).steps.tolist() == [1]


def test_penalties_count_prompt_and_output_apart_as_they_grow(
    builder: SamplingBatchBuilder,
) -> None:
    requests = [make_request("a", [1, 2, 2], frequency_penalty=1), make_request("b", [3])]
    for token in (5, 2, 5):
        requests[0].token_ids.append(token)
        penalties = builder.build(requests).penalties
    assert penalties is not None
    assert penalties.output_counts[0].tolist() == [0, 0, 1, 0, 0, 2, 0, 0, 0, 0]
    assert penalties.prompt_mask[0].nonzero().flatten().tolist() == [1, 2]
    assert penalties.prompt_mask[1].nonzero().flatten().tolist() == [3]
    assert penalties.frequency.tolist() == [1, 0]


def test_penalties_stay_with_their_request_when_the_batch_changes(
    builder: SamplingBatchBuilder,
) -> None:
    a, b = make_request("a", [1], presence_penalty=1), make_request("b", [2], presence_penalty=1)
    a.token_ids.append(7)
    builder.build([a, b])
    penalties = builder.build([b, a]).penalties
    assert penalties is not None
    assert penalties.output_counts[:, 7].tolist() == [0, 1]


def test_a_seed_of_one_s_own_does_not_depend_on_arrival() -> None:
    params = SamplingParams(seed=-5, n=2)
    first, second = (resolve_seed(params, 0, 10, index) for index in (0, 1))
    assert first != second
    assert [resolve_seed(params, 9, 77, index) for index in (0, 1)] == [first, second]
    assert all(0 <= seed < 2**63 for seed in (first, second))
