"""Sampling parameters as tensors: what a client may send must fit into them."""

import pytest
import torch

from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.engine.sampling import SamplingBatchBuilder

VOCAB = 10


@pytest.mark.parametrize("top_k", [VOCAB + 1, 2**63, 10**30])
def test_top_k_beyond_the_vocabulary_is_all_of_it(top_k: int) -> None:
    builder = SamplingBatchBuilder(VOCAB, torch.device("cpu"))
    request = Request("a", [1], SamplingParams(top_k=top_k))
    assert builder.build([request]).top_k.tolist() == [VOCAB]


def test_neighbour_without_penalties_is_not_penalised() -> None:
    builder = SamplingBatchBuilder(VOCAB, torch.device("cpu"))
    plain = Request("a", [1, 1, 2], SamplingParams())
    penalised = Request("b", [3], SamplingParams(presence_penalty=1, repetition_penalty=2))
    penalties = builder.build([plain, penalised]).penalties
    assert penalties is not None
    assert penalties.presence.tolist() == [0, 1]
    assert penalties.repetition.tolist() == [1, 2]


def test_penalties_end_with_the_request_that_wanted_them() -> None:
    builder = SamplingBatchBuilder(VOCAB, torch.device("cpu"))
    plain = Request("a", [1], SamplingParams())
    penalised = Request("b", [3], SamplingParams(presence_penalty=1))
    assert builder.build([plain, penalised]).penalties is not None
    assert builder.build([plain]).penalties is None
