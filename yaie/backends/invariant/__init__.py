"""The backend of `deterministic` on a GPU: what is computed for a token depends on no other token.

    backend    `InvariantBackend`, which puts the rest together
    products   matrix products whose sums run in one order, however many rows there are
    ops        RMSNorm, a row a program
    attention  every query alone, its keys cut into as many parts as ever
    sampler    rows in batches of one size

Libraries choose kernels by shapes, and so does every table of tiles in our own: with another number of
rows a sum may be cut in other places (He 2025, "Defeating Nondeterminism in LLM Inference"). Here each
choice depends on the model alone.
"""

from yaie.backends.invariant.backend import InvariantBackend

__all__ = ["InvariantBackend"]
