"""How one request wants its tokens drawn."""

import sys
from dataclasses import dataclass

from yaie.core.errors import InvalidRequestError

LARGEST = sys.float_info.max
"""Comparing with it tells NaN, infinity and integers that no float can hold from numbers."""


def _require(condition: bool, param: str, message: str) -> None:
    if not condition:
        raise InvalidRequestError(f"{param} {message}", param=param)


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Immutable; checked on construction. `InvalidRequestError` names the field that is wrong.

    temperature: 0 is greedy, otherwise logits are divided by it.
    top_k: keep the k most likely tokens; 0 or -1 keeps all.
    top_p: keep the smallest set of most likely tokens whose probability reaches p.
    min_p: keep tokens at least min_p times as likely as the most likely one.
    presence_penalty, frequency_penalty: subtracted from the logit of each token already generated,
        once, and once for each occurrence.
    repetition_penalty: divides positive and multiplies negative logits of tokens seen in the prompt
        or the output (Keskar et al. 2019, section 4.1).
    max_tokens: tokens to generate at most; None means as many as fit.
    stop: strings that end the output; they are not part of it.
    stop_token_ids: token ids that end the output, as the end-of-sequence token does.
    ignore_eos: go on after the end-of-sequence token (benchmarks).
    seed: makes this request's draws repeatable, whatever else is in the batch.
    n: how many independent outputs to generate for the prompt.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None
    n: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        elif isinstance(self.stop, list):
            object.__setattr__(self, "stop", tuple(self.stop))
        if isinstance(self.stop_token_ids, list):
            object.__setattr__(self, "stop_token_ids", tuple(self.stop_token_ids))
        self._check_types()
        self._check_ranges()

    def _check_types(self) -> None:
        for name in ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty",
                     "repetition_penalty"):  # fmt: skip
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            _require(
                is_number and abs(value) <= LARGEST, name, f"must be a finite number, got {value!r}"
            )
        for name in ("top_k", "n"):
            value = getattr(self, name)
            _require(type(value) is int, name, f"must be an integer, got {value!r}")
        for name in ("max_tokens", "seed"):
            value = getattr(self, name)
            _require(
                value is None or type(value) is int, name, f"must be an integer, got {value!r}"
            )
        is_flag = type(self.ignore_eos) is bool
        _require(is_flag, "ignore_eos", f"must be true or false, got {self.ignore_eos!r}")
        stops_are_strings = isinstance(self.stop, tuple) and all(
            isinstance(text, str) for text in self.stop
        )
        _require(stops_are_strings, "stop", "must be a string or a list of strings")
        _require("" not in self.stop, "stop", "must not contain an empty string")
        ids_are_ints = isinstance(self.stop_token_ids, tuple) and all(
            type(token) is int for token in self.stop_token_ids
        )
        _require(ids_are_ints, "stop_token_ids", "must be a list of integers")

    def _check_ranges(self) -> None:
        _require(0.0 <= self.temperature <= 100.0, "temperature", "must be between 0 and 100")
        _require(self.top_k >= -1, "top_k", "must be -1 or 0 (off) or a positive integer")
        _require(0.0 < self.top_p <= 1.0, "top_p", "must be above 0 and at most 1")
        _require(0.0 <= self.min_p <= 1.0, "min_p", "must be between 0 and 1")
        for name in ("presence_penalty", "frequency_penalty"):
            _require(-2.0 <= getattr(self, name) <= 2.0, name, "must be between -2 and 2")
        _require(0.0 < self.repetition_penalty <= 10.0, "repetition_penalty",
                 "must be above 0 and at most 10")  # fmt: skip
        _require(
            self.max_tokens is None or self.max_tokens >= 1, "max_tokens", "must be at least 1"
        )
        _require(1 <= self.n <= 128, "n", "must be between 1 and 128")
        _require(self.seed is None or -(2**63) <= self.seed < 2**63, "seed", "must fit in 64 bits")
        _require(len(self.stop) <= 64, "stop", "may list at most 64 strings")

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken every time."""
        return self.temperature == 0.0

    @property
    def has_penalties(self) -> bool:
        """Whether the tokens seen so far change the logits."""
        return (
            self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
            or self.repetition_penalty != 1.0
        )
