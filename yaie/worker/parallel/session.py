"""What ranks of one launch know and strangers do not: the secret, and the numbers that each has drawn.

torch's store and gloo take whatever someone writes who reaches their ports. So what ranks put into the
store is sealed, gloo's own addresses among it, and so is each message that goes over gloo. Tensors are
not: gloo and NCCL send their bytes as they are.
"""

import secrets
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

from yaie.core.errors import RankError
from yaie.system.seals import NamedSeal, Seal, SealError

NUMBER_BYTES = 16


def new_number() -> str:
    """Of a rank for a launch. With those of all ranks, no message of an earlier launch counts."""
    return secrets.token_hex(NUMBER_BYTES)


@dataclass(frozen=True, slots=True)
class Session:
    """secret: of the launch. numbers: one of each rank, in order."""

    secret: bytes = field(repr=False)
    numbers: tuple[str, ...]

    def steps(self) -> Seal:
        """Of what rank 0 tells all others."""
        return Seal(self.secret, "steps", *self.numbers)

    def answers(self, rank: int) -> Seal:
        """Of what a rank tells rank 0."""
        return Seal(self.secret, f"answers of {rank}", *self.numbers)

    def store(self, store: Any) -> "SealedStore":
        """A store that only ranks of this session have written to."""
        return SealedStore(store, NamedSeal(self.secret, "store", *self.numbers))


class SealedStore(dist.Store):
    """A store of torch.distributed whose values carry a proof. Raises RankError for one that does not.

    It has the methods that gloo calls, and those of `FromZero`.
    """

    def __init__(self, store: Any, seal: NamedSeal) -> None:
        super().__init__()
        self._store = store
        self._seal = seal

    def set(self, key: str, value: str | bytes) -> None:
        data = value.encode() if isinstance(value, str) else bytes(value)
        self._store.set(key, self._seal.close(key, data))

    def get(self, key: str) -> bytes:
        try:
            return self._seal.open(key, self._store.get(key))
        except SealError as error:
            raise RankError(f"the store where ranks meet has been tampered with: {error}") from None

    def wait(self, keys: list[str], *timeout: Any) -> None:
        self._store.wait(keys, *timeout)
