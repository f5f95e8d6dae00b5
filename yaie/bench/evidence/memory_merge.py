"""Attention over a shared prefix once for all, joined with each request's own part: does it agree?

    python -m yaie.bench.evidence.memory_merge

For chapter "Radix attention". The largest difference from attention over all keys at once is recorded,
and how many keys and values each way reads.
"""

import torch
from torch import Tensor

from yaie.bench.evidence import EVIDENCE
from yaie.bench.report import save

OUT = EVIDENCE / "memory_merge.json"
NUM_REQUESTS, SHARED, OWN, HEAD_DIM = 64, 1000, 24, 32


# ANCHOR: part
def attend_part(queries: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Attention over some of the keys: (out [n, d], lse [n]).

    lse is the logarithm of the sum of exp(score), which says how much this part weighs.
    """
    scores = queries @ keys.T * queries.shape[-1] ** -0.5
    return scores.softmax(-1) @ values, scores.logsumexp(-1)


# ANCHOR_END: part


# ANCHOR: merge
def merge(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> tuple[Tensor, Tensor]:
    """Attention over the keys of both parts, from the results of the two."""
    lse = torch.logaddexp(lse_a, lse_b)
    weight_a, weight_b = (lse_a - lse).exp(), (lse_b - lse).exp()
    return weight_a[:, None] * out_a + weight_b[:, None] * out_b, lse


# ANCHOR_END: merge


def main() -> None:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return 3 * torch.randn(*shape, generator=generator)

    queries = normal(NUM_REQUESTS, HEAD_DIM)
    shared_k, shared_v = normal(SHARED, HEAD_DIM), normal(SHARED, HEAD_DIM)
    own_k, own_v = normal(NUM_REQUESTS, OWN, HEAD_DIM), normal(NUM_REQUESTS, OWN, HEAD_DIM)
    shared = attend_part(queries, shared_k, shared_v)
    largest = 0.0
    for i in range(NUM_REQUESTS):
        query = queries[i : i + 1]
        own = attend_part(query, own_k[i], own_v[i])
        joined, _ = merge(shared[0][i : i + 1], shared[1][i : i + 1], *own)
        whole, _ = attend_part(
            query, torch.cat((shared_k, own_k[i])), torch.cat((shared_v, own_v[i]))
        )
        largest = max(largest, (joined - whole).abs().max().item())
    figures = {
        "command": "python -m yaie.bench.evidence.memory_merge",
        "workload": f"{NUM_REQUESTS} queries, {SHARED} shared keys, {OWN} of their own, float32",
        "largest_difference": largest,
        "largest_output": joined.abs().max().item(),
        "tokens_read_each": NUM_REQUESTS * (SHARED + OWN),
        "tokens_read_shared_once": SHARED + NUM_REQUESTS * OWN,
    }
    print(figures)
    save(str(OUT), figures)


if __name__ == "__main__":
    main()
