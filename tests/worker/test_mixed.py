"""A padded step with chunks computes what an unpadded one does, and its padding touches nobody."""

import pytest
import torch

from tests.worker.rig import (
    BLOCK,
    MAX_LEN,
    NUM_SEATS,
    Rig,
    Share,
    logprobs_of,
    make_worker,
    mixed_requests,
    naive_tokens,
    request_of,
    step_of,
)
from tests.worker.test_padded import padding_worker
from yaie.worker.zones import DECODE_ZONES, MOST_TOKENS, chunk_zones, decode_zones, sizes_of

ZONES = [([NUM_SEATS], [MAX_LEN * NUM_SEATS]), ([1, 2, NUM_SEATS], [2, 5, 9, 30, 200])]


@pytest.mark.parametrize("zones", ZONES, ids=["one size", "many"])
@pytest.mark.parametrize("sizes", [[], [4, 8]], ids=["decodes too", "decodes apart"])
@pytest.mark.parametrize("most", [3, 7, MAX_LEN])
def test_every_request_draws_what_it_draws_alone(
    sizes: list[int], zones: tuple[list[int], list[int]], most: int
) -> None:
    """Prompts in chunks of at most `most` tokens beside decodes, single tokens among them."""
    worker, attention = padding_worker(sizes, zones=zones)
    rig = Rig(worker)
    requests = mixed_requests()
    rig.step(enter={0: requests[0], 1: requests[1]}, most=most)
    for _ in range(2):
        rig.step(most=most)
    rig.step(enter={4: requests[4]}, most=most)
    rig.step(0, 4, most=most)  # one rests
    rig.step(enter={3: requests[3], 2: requests[2]}, most=most)
    for _ in range(11):  # over the ends of blocks
        rig.step(most=most)
    for seat, request in rig.requests.items():
        assert len(rig.output(seat)) > 3
        assert rig.output(seat) == naive_tokens(request, len(rig.output(seat))), seat
    assert len(attention.batches) == rig.num_steps
    assert min(min(batch.kv_lens) for batch in attention.batches) == MAX_LEN  # padded, every one
    mixed = [batch for batch in attention.batches if batch.num_decodes is not None]
    assert len(mixed) == rig.num_steps if not sizes else 3 <= len(mixed) < rig.num_steps


def test_the_two_zones_are_padded_to_their_sizes() -> None:
    worker, attention = padding_worker([], zones=([2, 4], [8, 16]))
    rig = Rig(worker)
    rig.step(enter={0: request_of([1, 2, 3]), 3: request_of([4])})
    rig.step(enter={1: request_of([5] * 9), 2: request_of([6] * 3)})
    batch = attention.batches[-1]
    assert batch.num_decodes == 2
    assert batch.query_lens == [1, 1, 16] + [0] * 3
    assert min(batch.kv_lens) == MAX_LEN  # bounds, which hold for every step of this size
    assert batch.seq_lens.tolist() == [4, 2, 9, 3, 0, 0]
    assert batch.query_start_loc.tolist() == [0, 1, 2, 11, 14, 14, 14]
    assert batch.positions.tolist()[:14] == [3, 1, *range(9), *range(3)]
    assert batch.slot_mapping.tolist()[14:] == [-1] * 4


def test_padding_stores_nothing() -> None:
    worker, attention = padding_worker([], zones=([4], [16]))
    rig = Rig(worker)
    rig.step(enter={1: request_of([1, 2, 3])})
    keys, values = worker.pool.blocks(0)
    before = keys.clone(), values.clone()
    last_tokens = worker.batch.last_tokens.clone()
    rig.step(enter={2: request_of([4] * 5)})
    written = {slot // BLOCK for slot in attention.batches[-1].slot_mapping.tolist() if slot >= 0}
    for now, then in zip((keys, values), before, strict=True):
        changed = (now != then).flatten(1).any(1).nonzero().flatten().tolist()
        assert set(changed) == written
    assert torch.equal(worker.batch.last_tokens[[0, 3]], last_tokens[[0, 3]])


def test_prompts_are_told_of_as_without_padding() -> None:
    entries = []
    for worker in (padding_worker([], zones=ZONES[1])[0], make_worker()):
        rig = Rig(worker)
        rig.step(enter={0: request_of([1, 2, 3])})
        step = rig.plan(enter={1: request_of([4, 5, 6, 7], 1, prompt_logprobs=2)})
        entries.append(worker.execute(step).result())
    told = [logprobs_of(entry, "prompt_logprobs") for entry in entries]
    assert told[0] == told[1] != {}
    assert entries[0].token_ids == entries[1].token_ids


@pytest.mark.parametrize(
    ("share", "is_taken"),
    [
        (Share(0, 3, 1), True),
        (Share(0, 3, 9), False),
        (Share(0, 3, 8), True),
        (Share(0, 3, 3, drafts=(1, 2)), True),
        (Share(0, 3, 9, drafts=(1, 2)), False),
    ],
)
def test_larger_steps_are_not_taken(share: Share, is_taken: bool) -> None:
    worker, _ = padding_worker([], zones=([2], [4, 8]))
    assert worker.runner is not None
    assert worker.runner.takes(step_of(share)) == is_taken
    decodes = [Share(seat, 2, 1) for seat in range(3)]
    assert not worker.runner.takes(step_of(*decodes, share))


def test_sizes_hold_every_step_and_waste_little() -> None:
    for most in (1, 2, 63, 64, 65, 100, 512, 700, 2048, 16384):
        zones = chunk_zones(most)
        assert zones == sorted(set(zones))
        assert zones[-1] == min(most, MOST_TOKENS)
        for low, high in zip([0, *zones], zones, strict=False):
            assert high - low <= max(64, high / 4)
    for most in (1, 32, 33, 256, 1000):
        assert decode_zones(most) == [zone for zone in DECODE_ZONES if zone < most] + [most]
        assert decode_zones(most, drafts=True) == [0, *decode_zones(most)]
    assert chunk_zones(700, drafts=True) == [8, 16, 32, *chunk_zones(700)]
    assert chunk_zones(16, drafts=True) == [8, 16]


def test_sizes_ascend_and_hold_as_many_chunks_as_there_may_be() -> None:
    """A chunk has two tokens at least, and a request has one chunk."""
    sizes = sizes_of([1, 2, 4], [0, 4], [5, 64])
    assert [tuple(size) for size in sizes] == [
        (1, 0, 0), (2, 0, 0), (4, 0, 0), (0, 5, 2), (4, 5, 2), (0, 64, 4), (4, 64, 4),
    ]  # fmt: skip
    assert sizes_of([2], [1], [1])[1].chunks == 1  # a token that was sent has a place in it
