"""The lists and texts that `SamplingParams` may hold: few requests have any."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from yaie.core.errors import InvalidRequestError
from yaie.core.ranges import LARGEST, RANGES

if TYPE_CHECKING:
    from yaie.core.params import SamplingParams

MAX_LOGIT_BIASES = 1024
MAX_STOPS = 64
MAX_STOP_CHARS = 256
"""Of one stop string: what is held back, and looked through at each token, is no longer."""
MAX_STOP_TOKEN_IDS = 1024
MAX_LOGPROB_TOKEN_IDS = 128
MAX_BAD_WORDS = 128
MAX_SALT_CHARS = 256


def as_tuples(params: "SamplingParams") -> None:
    """Lists and mappings that are taken as well become what the fields hold."""
    if isinstance(params.stop, str):
        object.__setattr__(params, "stop", (params.stop,))
    for name in ("stop", "stop_token_ids", "logprob_token_ids", "bad_words"):
        if isinstance(getattr(params, name), list):
            object.__setattr__(params, name, tuple(getattr(params, name)))
    if isinstance(params.logit_bias, Mapping):
        object.__setattr__(params, "logit_bias", tuple(params.logit_bias.items()))


def check_kinds(params: "SamplingParams") -> None:
    """Raise InvalidRequestError for one that is of another type, or holds something else."""
    stops_are_strings = isinstance(params.stop, tuple) and all(
        isinstance(text, str) for text in params.stop
    )
    _require(stops_are_strings, "stop", "must be a string or a list of strings")
    _require("" not in params.stop, "stop", "must not contain an empty string")
    are_words = isinstance(params.bad_words, tuple) and all(
        isinstance(word, str) and word.strip() for word in params.bad_words
    )
    _require(are_words, "bad_words", "must be a list of strings, none of them blank")
    is_salt = params.cache_salt is None or isinstance(params.cache_salt, str)
    _require(
        is_salt and params.cache_salt != "", "cache_salt", "must be a string, not an empty one"
    )
    for name in ("stop_token_ids", "logprob_token_ids"):
        ids = getattr(params, name)
        are_ints = isinstance(ids, tuple) and all(type(token) is int for token in ids)
        _require(are_ints, name, "must be a list of integers")
    _require(_are_biases(params.logit_bias), "logit_bias", "must map token ids to finite numbers")


def check_sizes(params: "SamplingParams") -> None:
    """Raise InvalidRequestError for one that is too long, or holds a number that is out of range."""
    _require(len(params.stop) <= MAX_STOPS, "stop", f"may list at most {MAX_STOPS} strings")
    for index, stop in enumerate(params.stop):
        _require(len(stop) <= MAX_STOP_CHARS, "stop",
                 f"may hold strings of at most {MAX_STOP_CHARS} characters; the one at index "
                 f"{index} has {len(stop)}. Give a shorter part of it.")  # fmt: skip
    _require(len(params.bad_words) <= MAX_BAD_WORDS, "bad_words",
             f"may list at most {MAX_BAD_WORDS} strings")  # fmt: skip
    longest = max(map(len, params.bad_words), default=0)
    _require(longest <= MAX_STOP_CHARS, "bad_words",
             f"may hold strings of at most {MAX_STOP_CHARS} characters, not {longest}")  # fmt: skip
    _require(len(params.cache_salt or "") <= MAX_SALT_CHARS, "cache_salt",
             f"may have at most {MAX_SALT_CHARS} characters")  # fmt: skip
    _require(len(params.stop_token_ids) <= MAX_STOP_TOKEN_IDS, "stop_token_ids",
             f"may list at most {MAX_STOP_TOKEN_IDS} tokens")  # fmt: skip
    _require(len(params.logprob_token_ids) <= MAX_LOGPROB_TOKEN_IDS, "logprob_token_ids",
             f"may list at most {MAX_LOGPROB_TOKEN_IDS} tokens")  # fmt: skip
    _require(params.logprobs is not None or not params.logprob_token_ids, "logprob_token_ids",
             "may only be given together with logprobs")  # fmt: skip
    _require(len(params.logit_bias) <= MAX_LOGIT_BIASES, "logit_bias",
             f"may name at most {MAX_LOGIT_BIASES} tokens")  # fmt: skip
    for name in ("stop_token_ids", "logprob_token_ids"):
        for index, token in enumerate(getattr(params, name)):
            RANGES["token"].require(token, f"{name}[{index}]")
    for token, bias in params.logit_bias:
        RANGES["biased_token"].require(token, "logit_bias", "token")
        RANGES["logit_bias"].require(bias, "logit_bias", f"the bias of {token}")


def _require(condition: bool, param: str, message: str) -> None:
    if not condition:
        raise InvalidRequestError(f"{param} {message}", param=param)


def _are_biases(pairs: object) -> bool:
    return isinstance(pairs, tuple) and all(
        type(token) is int and isinstance(bias, int | float) and abs(bias) <= LARGEST
        for token, bias in pairs
    )
