"""Cases for real ranks; each runs in the process of every rank, with its link."""

from typing import Any

import torch
from torch import Tensor

from grader.suites.tensor_parallel.bench import cut, drawn, lend_shares, lent_ring
from solutions import tensor_parallel as reference


def reduced(part: Any, link: Any, n: int, dtype: torch.dtype) -> Tensor:
    """All-reduce of numbers that the rank draws."""
    lend_shares()
    result: Tensor = lent_ring(part, link).all_reduce(drawn(n, seed=link.rank, dtype=dtype))
    return result


def gathered(part: Any, link: Any, n: int) -> Tensor:
    """All-gather of numbers that the rank draws."""
    lend_shares()
    result: Tensor = part.Ring(link).all_gather(drawn(2, n, seed=link.rank))
    return result


def of_logits(part: Any, link: Any, method: str, rows: int, vocab_size: int) -> Tensor:
    """What a method of VocabLogits gives for logits that all ranks draw alike and hold in part."""
    lend_shares()
    logits = part.VocabLogits(vocab_size, reference.Ring(link))
    mine = cut(drawn(rows, vocab_size, seed=0), link.rank, link.size)
    result: Tensor = getattr(logits, method)(mine)
    return result


def staged(part: Any, link: Any, num_tokens: list[int], width: int) -> list[Tensor]:
    """Microbatches through stages, each of which doubles and adds its number."""

    def compute(index: int, given: Tensor | None) -> Tensor:
        x = drawn(num_tokens[index], width, seed=index) if given is None else given
        return x * 2 + link.rank

    results: list[Tensor] = part.Pipeline(link).run(
        num_tokens, compute, lambda tokens: torch.empty(tokens, width)
    )
    return results
