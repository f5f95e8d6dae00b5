"""How two servers find out that they fit, before anything else is said.

    decode                                      prefill
    hello: its layout, a random number   --->
                                         <---   why it refuses, a random number, a proof
    a proof                              --->
                                         <---   why it refuses

A proof is an HMAC of both random numbers with the secret, and each side's differs; from then on each
message has one. The secret itself is never sent. It keeps strangers out and lets the decode side know
its prefill server. It does not encrypt: who can read the network reads prompts, keys and values.
"""

import hmac
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from yaie.core.errors import ConfigError, YaieError
from yaie.engine.handover.layout import FORMAT, difference
from yaie.engine.handover.messages import Hello, Message, Proof, Reply, Verdict
from yaie.engine.handover.wire import Wire
from yaie.system.seals import HOW_TO_MAKE, LEAST_SECRET, Seal, tag

HELLO_SECONDS = 5.0
"""How long a greeting may take in all, however the other side spends it."""
MOST_BYTES = 1 << 18
"""Of a message of a stranger."""
PREFILL, DECODE = "prefill", "decode"


class RefusedError(YaieError):
    """The two servers do not fit; says why."""


class FullError(YaieError):
    """The prefill server has no room for one more; it hangs up, and is asked again."""


def greet(wire: Wire, layout: dict[str, Any], secret: bytes | None) -> None:
    """The decode side's part. Raises RefusedError; OSError, EOFError or ValueError if no prefill server
    answers there."""
    wire.within(HELLO_SECONDS)
    ours = secrets.token_hex(16)
    wire.send(Hello(FORMAT, json.dumps(layout), ours, secret is not None))
    match _said(wire):
        case Reply(why, theirs, proof):
            if why:
                raise RefusedError(why)
            if secret and not _is_proof(proof, secret, PREFILL, ours, theirs):
                raise RefusedError("its secret (handover_key_file) is another one")
            wire.send(Proof(_proof(secret, DECODE, ours, theirs)))
        case _:
            raise ValueError("what answers is no prefill server")
    match _said(wire):
        case Verdict(why):
            if why:
                raise RefusedError(why)
        case _:
            raise ValueError("what answers is no prefill server")
    if secret:
        wire.seal(*_seals(secret, (DECODE, PREFILL), ours, theirs))
    wire.within(None)


def welcome(
    wire: Wire, layout: dict[str, Any], secret: bytes | None, take_slot: Callable[[], bool]
) -> None:
    """The prefill side's part. take_slot: called for one who is welcome; whether there is room.

    Raises RefusedError, of which the other side has been told; FullError; OSError, EOFError or
    ValueError if no decode server calls.
    """
    wire.within(HELLO_SECONDS)
    match _said(wire):
        case Hello(version, there, theirs, has_secret):
            pass
        case _:
            raise ValueError("what calls is no decode server")
    why = _unlike(layout, version, there)
    if has_secret != (secret is not None):
        why = "it has a secret (handover_key_file), and the decode server has none"
        if has_secret:
            why = "it has no secret (handover_key_file), and the decode server has one"
    ours = secrets.token_hex(16)
    wire.send(Reply(why, ours, "" if why else _proof(secret, PREFILL, theirs, ours)))
    if why:
        raise RefusedError(why)
    match _said(wire):
        case Proof(proof):
            pass
        case _:
            raise ValueError("what calls is no decode server")
    if secret and not _is_proof(proof, secret, DECODE, theirs, ours):
        why = "the decode server's secret (handover_key_file) is another one"
    if not why and not take_slot():
        raise FullError("there are as many as this server takes")
    wire.send(Verdict(why))
    if why:
        raise RefusedError(why)
    if secret:
        wire.seal(*_seals(secret, (PREFILL, DECODE), theirs, ours))
    wire.within(None)


def secret_in(path: str) -> bytes:
    """The secret that a file holds, without white space around it. Raises ConfigError."""
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise ConfigError(
            f"handover_key_file: cannot read {path}: {error.strerror}", param="handover_key_file"
        ) from None
    if len(secret) < LEAST_SECRET:
        raise ConfigError(
            f"handover_key_file: {path} has {len(secret)} bytes, and a secret needs {LEAST_SECRET}: "
            f"write what `{HOW_TO_MAKE}` prints",
            param="handover_key_file",
        )
    return secret


def _said(wire: Wire) -> Message:
    return wire.receive(0, MOST_BYTES)[0]


def _unlike(layout: dict[str, Any], version: int, there: str) -> str:
    """What is not alike on the other side, in words; "" if nothing is. Raises ValueError."""
    if version != FORMAT:
        return f"format is {FORMAT} here and {version} there"
    try:
        theirs = json.loads(there)
    except RecursionError:
        raise ValueError("what calls is no decode server") from None
    if not isinstance(theirs, dict):
        raise ValueError("what calls is no decode server")
    return difference(layout, theirs)


def _proof(secret: bytes | None, side: str, decode: str, prefill: str) -> str:
    """That a side knows the secret, by the numbers of both; "" without a secret."""
    return "" if secret is None else tag(secret, side, decode, prefill).hex()


def _is_proof(told: str, secret: bytes, side: str, decode: str, prefill: str) -> bool:
    """In constant time. As bytes, for of texts only ASCII can be compared."""
    right = _proof(secret, side, decode, prefill)
    return hmac.compare_digest(told.encode(errors="replace"), right.encode())


def _seals(secret: bytes, way: tuple[str, str], decode: str, prefill: str) -> tuple[Seal, Seal]:
    """Of what a side says and of what it hears. way: from this side to the other."""
    here, there = way
    says = Seal(secret, f"from {here}", decode, prefill)
    return says, Seal(secret, f"from {there}", decode, prefill)
