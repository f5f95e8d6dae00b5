"""Proofs that a message comes from someone who knows a secret: HMAC-SHA256 (RFC 2104).

They keep strangers from being heard. They do not encrypt: who can read the network reads what is said.
"""

import hashlib
import hmac
import json

TAG_BYTES = 32
Piece = bytes | bytearray | memoryview
LEAST_SECRET = 16
"""Bytes that a secret needs."""
HOW_TO_MAKE = "openssl rand -hex 32"


class SealError(ValueError):
    """A message does not come from someone who knows the secret, or not at this point."""


def tag(secret: bytes, *said: str) -> bytes:
    """What only someone who knows the secret can say about these texts. Raises ValueError for a secret
    that could be guessed."""
    if len(secret) < LEAST_SECRET:
        raise ValueError(f"a secret needs {LEAST_SECRET} bytes, and this one has {len(secret)}")
    return hmac.digest(secret, json.dumps(said).encode(), hashlib.sha256)


class Seal:
    """One way of a connection: the sender has one of these, the receiver another one alike.

    Messages are numbered on both sides, so none counts that is repeated, left out or out of order. The
    two ways of a connection need different words, or a message would count for an answer.
    """

    def __init__(self, secret: bytes, *way: str) -> None:
        """way: what tells it from every other way, with numbers that both sides have drawn for it."""
        self._key = tag(secret, *way)
        self._number = 0

    def close(self, data: bytes | bytearray) -> bytes:
        """The next message, with its proof before it."""
        return self.proof(data) + data

    def proof(self, *pieces: Piece) -> bytes:
        """Of the next message, which is sent in these pieces."""
        digest = hmac.new(self._key, self._number.to_bytes(8, "little"), hashlib.sha256)
        for piece in pieces:
            digest.update(piece)
        self._number += 1
        return digest.digest()

    def check(self, proof: Piece, *pieces: Piece) -> None:
        """Raise SealError unless this is the proof of the next message. Sizes must be part of it."""
        if not hmac.compare_digest(proof, self.proof(*pieces)):
            raise SealError("a message came from someone who does not know the secret")

    def open(self, sealed: bytes | bytearray) -> bytearray:
        """The next message without its proof. Raises SealError."""
        data = bytearray(sealed[TAG_BYTES:])
        self.check(sealed[:TAG_BYTES], data)
        return data


class NamedSeal:
    """Of values that lie under a name where others can write, too."""

    def __init__(self, secret: bytes, *what: str) -> None:
        self._key = tag(secret, *what)

    def close(self, name: str, value: bytes) -> bytes:
        """The value, with its proof before it."""
        return self._proof(name, value) + value

    def open(self, name: str, sealed: bytes) -> bytes:
        """The value. Raises SealError if it was not put under this name with this secret."""
        proof, value = sealed[:TAG_BYTES], sealed[TAG_BYTES:]
        if not hmac.compare_digest(proof, self._proof(name, value)):
            raise SealError(f"{name} was written by someone who does not know the secret")
        return value

    def _proof(self, name: str, value: bytes) -> bytes:
        spelled = name.encode()
        said = len(spelled).to_bytes(8, "little") + spelled + value
        return hmac.digest(self._key, said, hashlib.sha256)
