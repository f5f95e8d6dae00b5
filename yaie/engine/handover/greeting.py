"""How two servers find out that they fit, before anything else is said.

    decode                                      prefill
    hello: its layout, a random number   --->
                                         <---   why it refuses, a random number, a proof
    a proof                              --->
                                         <---   why it refuses

A proof is an HMAC of both random numbers with the secret, and each side's differs. The secret itself is
never sent. It keeps strangers out and lets the decode side know its prefill server. It does not encrypt:
who can read the network reads prompts, keys and values.
"""

import hashlib
import hmac
import json
import secrets
from pathlib import Path
from typing import Any

from yaie.core.errors import ConfigError, YaieError
from yaie.engine.handover.layout import difference
from yaie.engine.handover.wire import Message, Wire

HELLO_SECONDS = 5.0
"""How long the other side may take to answer in a greeting."""
MOST_BYTES = 1 << 18
"""Of a message of a stranger."""
LEAST_SECRET = 16


class RefusedError(YaieError):
    """The two servers do not fit; says why."""


def greet(wire: Wire, layout: dict[str, Any], secret: bytes | None) -> None:
    """The decode side's part. Raises RefusedError; OSError, EOFError or ValueError if no prefill server
    answers there."""
    wire.within(HELLO_SECONDS)
    ours = secrets.token_hex(16)
    wire.send({"hello": layout, "number": ours, "has_secret": secret is not None})
    match _said(wire):
        case {"refused": str(why), "number": str(theirs), "proof": str(proof)}:
            if why:
                raise RefusedError(why)
            if secret and not hmac.compare_digest(proof, _proof(secret, "prefill", ours, theirs)):
                raise RefusedError("its secret (handover_key_file) is another one")
            wire.send({"proof": _proof(secret, "decode", ours, theirs)})
        case _:
            raise ValueError("what answers is no prefill server")
    match _said(wire):
        case {"refused": str(why)}:
            if why:
                raise RefusedError(why)
        case _:
            raise ValueError("what answers is no prefill server")
    wire.within(None)


def welcome(wire: Wire, layout: dict[str, Any], secret: bytes | None) -> None:
    """The prefill side's part. Raises RefusedError, of which the other side has been told; OSError,
    EOFError or ValueError if no decode server calls."""
    wire.within(HELLO_SECONDS)
    match _said(wire):
        case {"hello": dict(layout_there), "number": str(theirs), "has_secret": bool(has_secret)}:
            pass
        case _:
            raise ValueError("what calls is no decode server")
    why = difference(layout, layout_there)
    if has_secret != (secret is not None):
        why = "it has a secret (handover_key_file), and the decode server has none"
        if has_secret:
            why = "it has no secret (handover_key_file), and the decode server has one"
    ours = secrets.token_hex(16)
    proof = "" if why else _proof(secret, "prefill", theirs, ours)
    wire.send({"refused": why, "number": ours, "proof": proof})
    if why:
        raise RefusedError(why)
    match _said(wire):
        case {"proof": str(proof)}:
            pass
        case _:
            raise ValueError("what calls is no decode server")
    if secret and not hmac.compare_digest(proof, _proof(secret, "decode", theirs, ours)):
        why = "the decode server's secret (handover_key_file) is another one"
    wire.send({"refused": why})
    if why:
        raise RefusedError(why)
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
            "write what `openssl rand -hex 32` prints",
            param="handover_key_file",
        )
    return secret


def _said(wire: Wire) -> Message:
    return wire.receive(0, MOST_BYTES)[0]


def _proof(secret: bytes | None, side: str, decode: str, prefill: str) -> str:
    """That a side knows the secret, by the numbers of both; "" without a secret."""
    if secret is None:
        return ""
    said = json.dumps([side, decode, prefill]).encode()
    return hmac.new(secret, said, hashlib.sha256).hexdigest()
