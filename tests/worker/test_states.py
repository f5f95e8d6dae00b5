"""Slots of states in a worker: laid out apart, begun anew, copied, left alone by rows of padding and by
drafts that were wrong."""

import random
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from solutions import state_cache
from solutions.cuda_graphs import GraphRunner, ToHost
from solutions.paged_cache import KVPool
from solutions.sampler import Sampler
from solutions.speculative import accepted
from solutions.state_cache import StatePool
from solutions.transformer_ops import TransformerOps
from tests.worker.rig import BLOCK, CPU, GREEDY, MAX_BLOCKS, MAX_LEN, NUM_SEATS, VOCAB, Rig
from tests.worker.test_drafts import GUESSES, Guess
from tests.worker.test_padded import BoundedAttention
from yaie.backends.states.naive import NaiveStateOps
from yaie.core.batch import KVLayerSpec
from yaie.core.contracts import Attend
from yaie.core.contracts.states import StateBatch, StateTensor
from yaie.core.request import Request
from yaie.core.step import Fault
from yaie.models.adapter import ModelAdapter
from yaie.models.hybrid import states_of
from yaie.worker.graphs import device_for
from yaie.worker.states import StatefulWorker
from yaie.worker.zones import sizes_of

WIDTH = 3


class SumsAdapter(ModelAdapter):
    """The next token is a function of all before it, which a state adds up; nothing attends."""

    def __init__(self) -> None:
        config = SimpleNamespace(vocab_size=VOCAB)
        super().__init__(config, TransformerOps(), torch.float64, CPU, MAX_LEN)
        self.kv_layers = [KVLayerSpec(1, 8)]
        self.state_layers = [
            (StateTensor((4, WIDTH - 1), torch.float64), StateTensor((1, 4, 4), torch.float64))
        ]
        generator = torch.Generator().manual_seed(0)
        self.embedding = torch.randn(VOCAB, 4, generator=generator, dtype=torch.float64)
        self.weight = torch.randn(4, WIDTH, generator=generator, dtype=torch.float64)

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        states = states_of(attend)
        tails, matrices = states.pools[0]
        x = self.embedding[token_ids]
        mixed = states.ops.short_conv(x, self.weight, None, tails, states.batch)
        k = torch.nn.functional.normalize(mixed, dim=1)[:, None]
        ones = torch.ones(len(x), 1, dtype=torch.float64)
        read = states.ops.gated_delta_rule(
            x[:, None], k, mixed[:, None], -0.05 * ones, 0.7 * ones, matrices, states.batch
        )
        return read[:, 0] + mixed

    def logits(self, hidden: Tensor) -> Tensor:
        return (hidden @ self.embedding.T).float()


def alone(tokens: list[int], count: int) -> list[int]:
    """The next tokens of a text, each computed from its first token on."""
    return _alone(tuple(tokens), count)


@cache
def _alone(tokens: tuple[int, ...], count: int) -> list[int]:
    adapter, found = SumsAdapter(), [*tokens]
    for _ in range(count):
        pool = StatePool(adapter.state_layers, 1, CPU)
        batch = StateBatch(
            [len(found)], torch.tensor([0, len(found)]), torch.zeros(1, dtype=torch.int64),
            torch.ones(1, dtype=torch.bool),
        )  # fmt: skip
        states = SimpleNamespace(ops=NaiveStateOps(), pools=pool.layers, batch=batch)
        attend: Any = SimpleNamespace(states=states)
        hidden = adapter.forward(torch.tensor(found), torch.arange(len(found)), attend)
        found.append(int(adapter.logits(hidden)[-1].argmax()))
    return found[len(tokens) :]


def make_worker(**more: Any) -> StatefulWorker:
    adapter = SumsAdapter()
    pool = KVPool(adapter.kv_layers, NUM_SEATS * MAX_BLOCKS, BLOCK, torch.float64, CPU, 0)
    return StatefulWorker(
        adapter,
        BoundedAttention(pool),
        pool,
        Sampler(),
        CPU,
        state_ops=NaiveStateOps(),
        make_pool=StatePool,
        rollback=state_cache,
        num_seats=NUM_SEATS,
        max_model_len=MAX_LEN,
        explain=lambda error: Fault(str(error)),
        to_host=partial(ToHost, device=device_for(CPU)),
        accepted=accepted,
        **more,
    )


def request(tokens: list[int]) -> Request:
    return Request(f"{tokens}", list(tokens), GREEDY)


def expect_tokens(rig: Rig) -> None:
    for seat, one in rig.requests.items():
        drawn = rig.output(seat)
        assert drawn == alone(one.token_ids[: one.num_prompt_tokens], len(drawn)), seat


def test_no_two_states_share_a_number() -> None:
    layers = [
        (StateTensor((3, 2), torch.float32), StateTensor((2, 3, 5), torch.float32)),
        (StateTensor((3, 2), torch.bfloat16),),
        (StateTensor((7,), torch.float32),),
    ]
    pool = StatePool(layers, 4, CPU)
    tensors = [one for layer in pool.layers for one in layer]
    for number, one in enumerate(tensors, 1):
        one.fill_(number)
        assert one.data_ptr() % 16 == 0
    for number, (one, spec) in enumerate(
        zip(tensors, [one for layer in layers for one in layer], strict=True), 1
    ):
        assert one.shape == (4, *spec.shape)
        assert one.dtype == spec.dtype
        assert (one == number).all()


def test_a_slot_is_copied_whole_and_alone() -> None:
    layers = [(StateTensor((3, 2), torch.float32), StateTensor((5,), torch.bfloat16))]
    pool = StatePool(layers, 6, CPU)
    for one in pool.layers[0]:
        one.copy_(torch.arange(6).view(-1, *[1] * (one.dim() - 1)).expand_as(one))
    pool.copy(torch.tensor([1, 2]), torch.tensor([4, 1]))
    for one in pool.layers[0]:
        assert one.flatten(1).float().mean(1).tolist() == [0, 2, 2, 3, 1, 5]


@pytest.mark.parametrize("sizes", [None, [1, 2, 4, 8], [NUM_SEATS]])
def test_every_request_draws_what_it_draws_alone(sizes: list[int] | None) -> None:
    """Beside others, in chunks, in a seat that had another before, and in rows that are padded."""
    worker = make_worker()
    if sizes is not None:
        machine = worker.padded_machine()
        every = sizes_of(sizes, sizes, [16, 64])
        worker.runner = GraphRunner(machine, device_for(CPU), every, records=False)
    for layer in worker.states.layers:
        for one in layer:
            one.fill_(float("nan"))
    rig = Rig(worker)
    rig.step(enter={0: request([3, 4, 5, 6, 7]), 1: request([9])})
    for _ in range(3):
        rig.step()
    rig.step(enter={4: request([8, 2, 2, 1, 5, 3, 3])}, most=3)
    rig.step(0, 4, most=3)  # one rests
    rig.step(most=3)
    rig.step(enter={1: request([7, 7])})
    for _ in range(5):
        rig.step()
    expect_tokens(rig)
    assert isinstance(worker.attention, BoundedAttention)
    rows = [len(batch.query_lens) for batch in worker.attention.batches]
    assert sizes is None or all(count in sizes or count > max(sizes) for count in rows)
    nobody = worker.batch.nobody
    others = [seat for seat in range(nobody) if seat not in rig.requests]
    for layer in worker.states.layers:
        for one in layer:
            assert one[others].isnan().all()
            assert not one[list(rig.requests)].isnan().any()


@pytest.mark.parametrize("guess", GUESSES.values(), ids=GUESSES)
@pytest.mark.parametrize("how", ["as they are", "padded", "padded, but not for drafts", "mixed"])
def test_a_wrong_draft_leaves_no_trace_in_a_state(
    guess: Guess, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a prompt or a token, a first one too, beside others without drafts, in a used seat. mixed:
    steps of many tokens are not padded."""
    worker, rng = make_worker(replays_drafts=how in ("padded", "mixed")), random.Random(0)
    if how == "mixed":
        monkeypatch.setattr("yaie.worker.states.MOST_REPLAYED", 4)
    if how != "as they are":
        every = sizes_of([NUM_SEATS], [0, 2, NUM_SEATS], [2, 4, 16, 64])
        machine = worker.padded_machine()
        worker.runner = GraphRunner(machine, device_for(CPU), every, records=False)
    for one in worker.states.layers[0]:
        one.fill_(float("nan"))
    prompts = {0: [3, 4, 5, 6, 7], 1: [9], 3: [8, 2], 4: [5, 6, 2, 2]}
    true = {seat: alone(prompt, 30) for seat, prompt in prompts.items()}
    rig = Rig(worker)

    def guessed(*seats: int) -> dict[int, list[int]]:
        return {
            seat: guess(true[seat][len(rig.output(seat)) if seat in rig.requests else 0 :], rng)
            for seat in seats
        }

    rig.step(enter={seat: request(prompts[seat]) for seat in (0, 1, 3)}, drafts=guessed(0, 1))
    for seats in ((0, 1, 3), (1,), (), (3,), (0, 3)):
        rig.step(drafts=guessed(*seats))
    rig.step(4, 0, 1, 3, enter={4: request(prompts[4])}, drafts=guessed(0, 3))
    rig.step(drafts=guessed(1, 4))
    rig.step(0, 1, enter={1: request([7, 7, 1])})  # a prompt in a seat that had drafts
    rig.step(drafts=guessed(0, 3))
    expect_tokens(rig)
    plain = make_worker()
    for layer in plain.states.layers:
        for one in layer:
            one.fill_(float("nan"))
    again = Rig(plain)
    for seat, one in rig.requests.items():  # what is computed of each, at once and without drafts
        again.step(seat, enter={seat: request(one.token_ids[:-1])})
    for drafted, wanted in zip(worker.states.layers[0], plain.states.layers[0], strict=True):
        for seat in prompts:
            torch.testing.assert_close(drafted[seat], wanted[seat], rtol=0, atol=1e-12)
        rest = [slot for slot in range(worker.batch.nobody) if slot not in prompts]
        assert drafted[rest].isnan().all()


def test_a_step_that_fails_leaves_states_as_they_were() -> None:
    rig = Rig(make_worker())
    rig.step(enter={0: request([3, 4, 5])})
    worker = rig.worker
    assert isinstance(worker, StatefulWorker)
    before = [one.clone() for one in worker.states.layers[0]]
    step = rig.plan(drafts={0: [1, 2, 3]})
    logits = worker.adapter.logits
    worker.adapter.logits = lambda hidden: logits(hidden).fill_(float("nan"))  # type: ignore[method-assign]
    assert worker.execute(step).result().corrupted == [0]
    for one, own in zip(before, worker.states.layers[0], strict=True):
        assert torch.equal(one[0], own[0])


def test_a_model_with_states_says_that_it_lacks_them() -> None:
    with pytest.raises(RuntimeError, match="without a pool of states"):
        SumsAdapter().forward(torch.tensor([3]), torch.tensor([0]), lambda *_: torch.zeros(1))
