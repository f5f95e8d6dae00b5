"""A padded step of decodes draws what an unpadded one does, and its padding touches nobody."""

from typing import Any

import pytest
import torch
from torch import Tensor

from solutions.cuda_graphs import GraphRunner
from solutions.sampler import Sampler
from tests.worker.rig import (
    BLOCK,
    CPU,
    MAX_BLOCKS,
    MAX_LEN,
    MIXED,
    NUM_SEATS,
    Rig,
    TinyAdapter,
    logprobs_of,
    make_worker,
    mixed_requests,
    naive_tokens,
    request_of,
)
from yaie.core.batch import AttentionBatch, AttentionSpec
from yaie.core.contracts import KVPool as AnyPool
from yaie.core.step import StepInput
from yaie.worker.graphs import device_for
from yaie.worker.padded import PaddedMachine
from yaie.worker.worker import Worker
from yaie.worker.zones import sizes_of


class BoundedAttention:
    """Attention that reads lengths on the device alone, as kernels do. It notes what it is told."""

    def __init__(self, pool: AnyPool) -> None:
        self.pool = pool
        self.batches: list[AttentionBatch] = []

    def plan(self, batch: AttentionBatch) -> AttentionBatch:
        """See `BatchAttention`."""
        self.batches.append(batch)
        return batch

    def run(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, spec: AttentionSpec, plan: AttentionBatch
    ) -> Tensor:
        """See `BatchAttention`."""
        stored = plan.slot_mapping >= 0
        self.pool.write(layer, k[stored], v[stored], plan.slot_mapping[stored])
        keys, values = (x[:, :, 0] for x in self.pool.gather(layer, plan.block_tables))
        counts = plan.query_start_loc.diff().long()
        nobodys = torch.full((len(q) - int(counts.sum()),), len(counts))
        rows = torch.cat((torch.arange(len(counts)).repeat_interleave(counts), nobodys))
        hidden = torch.arange(keys.shape[1]) > plan.positions[:, None]
        hidden |= torch.cat((plan.seq_lens == 0, torch.ones(1, dtype=torch.bool)))[rows, None]
        rows = rows.clamp(max=len(counts) - 1)
        scores = torch.einsum("td,tkd->tk", q[:, 0], keys[rows]) * spec.scale
        weights = scores.masked_fill(hidden, float("-inf")).softmax(1).nan_to_num()
        return torch.einsum("tk,tkd->td", weights, values[rows])[:, None]


def padding_worker(
    sizes: list[int], sampler: Any = None, zones: tuple[list[int], list[int]] | None = None
) -> tuple[Worker, BoundedAttention]:
    """sizes: of decodes alone. zones: of decodes and of chunks, if those are padded as well."""
    worker = make_worker(TinyAdapter(), sampler)
    attention = BoundedAttention(worker.pool)
    worker.attention = attention
    machine = PaddedMachine(
        worker.adapter,
        attention,
        worker.pool,
        worker.sampler,
        None,
        worker.batch,
        MAX_LEN,
        CPU,
    )
    all_sizes = sizes_of(sizes, *(zones or ([], [])))
    worker.runner = GraphRunner(machine, device_for(CPU), all_sizes, records=False)
    return worker, attention


def rows_of_steps(attention: BoundedAttention) -> list[int]:
    """Rows of each step, padding included."""
    return [len(batch.query_lens) for batch in attention.batches]


@pytest.mark.parametrize("sizes", [[1, 2, 4, 8], [NUM_SEATS], [3, 16]])
def test_every_request_draws_what_it_draws_alone(sizes: list[int]) -> None:
    worker, attention = padding_worker(sizes)
    rig = Rig(worker)
    requests = mixed_requests()
    rig.step(enter={0: requests[0], 1: requests[1]})
    for _ in range(3):
        rig.step()
    rig.step(4, enter={4: requests[4]})
    rig.step(0, 4)  # one rests
    rig.step(enter={3: requests[3], 2: requests[2]})
    for _ in range(9):  # over the ends of blocks
        rig.step()
    for seat, request in rig.requests.items():
        assert rig.output(seat) == naive_tokens(request, len(rig.output(seat))), seat
    padded = rows_of_steps(attention)
    assert [padded[at] for at in (1, 2, 3, 5)] == [min(s for s in sizes if s >= 2)] * 4
    assert padded[-1] == min(size for size in sizes if size >= NUM_SEATS)


def test_plain_requests_are_drawn_for_by_seat_alone() -> None:
    """The sampler sees the same flags whoever is in the step: a graph could not change them."""
    flags = []

    class Noting(Sampler):
        def sample(self, logits: Tensor, batch: Any) -> Tensor:
            flags.append((len(logits), batch.all_greedy, batch.any_top_p, batch.penalties))
            drawn: Tensor = super().sample(logits, batch)
            return drawn

    rig = Rig(padding_worker([4], Noting())[0])
    plain = {
        0: request_of([3, 4], 0),
        1: request_of([5], 1, temperature=1.0),
        2: request_of([6, 7, 8], 2, temperature=0.5),
    }
    rig.step(enter=plain)
    for _ in range(6):
        rig.step()
    assert set(flags[1:]) == {(4, False, False, None)}
    for seat, request in plain.items():
        assert rig.output(seat) == naive_tokens(request, 7)


def test_a_seat_that_wants_more_after_a_plain_one_gets_it() -> None:
    """Whether a seat is plain is found out anew when it changes hands."""
    rig = Rig(padding_worker([2])[0])
    rig.step(enter={0: request_of([1, 2], temperature=1.0)})
    rig.step()
    for number, wish in enumerate([*MIXED[1:], {"temperature": 1.0}], 1):
        request = request_of([number, 2, 3], number, **wish)
        rig.step(enter={0: request})
        for _ in range(4):
            rig.step()
        assert rig.output(0) == naive_tokens(request, 5), wish


def test_padding_stores_nothing_and_draws_for_nobody() -> None:
    worker, attention = padding_worker([8])
    rig = Rig(worker)
    rig.step(enter={1: request_of([1, 2, 3]), 3: request_of([4])})
    pool = worker.pool
    keys, values = pool.blocks(0)
    keys_before, values_before = keys.clone(), values.clone()
    last_tokens = worker.batch.last_tokens.clone()
    rig.step()
    batch = attention.batches[-1]
    assert batch.seq_lens.tolist() == [4, 2] + [0] * 6
    assert batch.slot_mapping.tolist()[2:] == [-1] * 6
    assert min(batch.kv_lens) == MAX_LEN  # bounds, which hold for every step of this size
    written = {slot // BLOCK for slot in batch.slot_mapping.tolist() if slot >= 0}
    for now, before in ((keys, keys_before), (values, values_before)):
        changed = (now != before).flatten(1).any(1).nonzero().flatten().tolist()
        assert set(changed) == written
    others = [0, 2, 4]
    assert torch.equal(worker.batch.last_tokens[others], last_tokens[others])


def test_the_longest_come_first_and_results_keep_their_places() -> None:
    worker, attention = padding_worker([8])
    rig = Rig(worker)
    lengths = {0: 3, 1: 20, 2: 1, 3: 9}
    requests = {
        seat: request_of([seat] * length, seat, temperature=1.0, logprobs=seat % 2)
        for seat, length in lengths.items()
    }
    rig.step(enter=requests)
    result = rig.step()
    assert attention.batches[-1].seq_lens.tolist() == [21, 10, 4, 2] + [0] * 4
    told = logprobs_of(result)
    assert sorted(told) == [0, 1, 2, 3]
    for row, (seat, request) in enumerate(requests.items()):
        assert rig.output(seat) == naive_tokens(request, 2)
        assert told[row][0].token_id == request.output_token_ids[-1]


@pytest.mark.parametrize("kind", ["chunk", "known", "many"])
def test_without_sizes_of_chunks_other_steps_are_not_taken(kind: str) -> None:
    """A chunk, a token that control knows, more seats than rows."""
    worker, _ = padding_worker([2])
    assert worker.runner is not None
    rig = Rig(worker)
    seats = {0: request_of([1, 2]), 1: request_of([3])}
    rig.step(enter=seats)
    step = rig.plan()
    assert worker.runner.takes(step)
    if kind == "chunk":
        step.num_tokens[1] = 2
    elif kind == "known":
        worker.batch.num_known[1] = 2
    else:
        step = StepInput(9, *(field.repeat(2) for field in
                              (step.seats, step.starts, step.num_tokens, step.samples)))  # fmt: skip
    assert not worker.runner.takes(step)
    assert not worker.runner.draws(step)


@pytest.mark.parametrize("ask", [{"logprobs": 1}, {"frequency_penalty": 1.0}])
def test_what_is_asked_for_besides_is_read_from_padded_states(ask: dict[str, Any]) -> None:
    """Log-probabilities and penalties: the model's part is padded, the draw has the step's rows."""
    drawn_from = []

    class Noting(Sampler):
        def sample(self, logits: Tensor, batch: Any) -> Tensor:
            drawn_from.append(len(logits))
            drawn: Tensor = super().sample(logits, batch)
            return drawn

    worker, attention = padding_worker([4], Noting())
    rig = Rig(worker)
    request = request_of([1, 2, 3], temperature=1.0, **ask)
    rig.step(enter={0: request})
    result = rig.step()
    assert rows_of_steps(attention)[-1] == 4
    assert drawn_from == [1, 1]
    assert rig.output(0) == naive_tokens(request, 2)
    assert bool(logprobs_of(result)) == ("logprobs" in ask)


def test_more_new_blocks_than_rows_arrive() -> None:
    """A request that comes back from the host brings its whole table in a step of one token."""
    worker, _ = padding_worker([1])
    rig = Rig(worker)
    request = request_of(range(20), temperature=1.0)
    rig.step(enter={0: request})
    tables = worker.batch.tables.clone()
    worker.batch.tables[0] = 0
    step = rig.plan()
    step.table_seats = step.seats.repeat(MAX_BLOCKS)
    step.table_columns = torch.arange(MAX_BLOCKS).int().numpy()
    step.table_blocks = tables[0].numpy()
    assert worker.runner is not None
    assert worker.runner.draws(step)
    result = worker.execute(step).result()
    assert [request.output_token_ids[0], *result.token_ids[0]] == naive_tokens(request, 2)


def test_blocks_leave_in_a_step_whose_rows_are_reordered() -> None:
    """What a step brings about blocks is about no row, and stays as it is."""
    worker, _ = padding_worker([2])
    rig = Rig(worker)
    requests = {0: request_of([1, 2]), 1: request_of(range(9))}
    rig.step(enter=requests)
    step = rig.plan()
    step.extras["leaving"] = {"blocks": torch.tensor([3, 1]).int().numpy()}
    assert worker.runner is not None
    assert worker.runner.draws(step)
    result = worker.execute(step).result()
    assert len(result.extras["leaving"]["data"]) > 0
    for request, [token] in zip(requests.values(), result.token_ids, strict=True):
        assert [request.output_token_ids[0], token] == naive_tokens(request, 2)
