"""How one request wants its tokens drawn."""

from dataclasses import dataclass
from typing import Any, Literal

from yaie.core.constraint import Constraint as Constraint
from yaie.core.constraint import ThoughtLimit
from yaie.core.conversation import ROLES as ROLES  # finished labs import both from here
from yaie.core.conversation import PromptOptions as PromptOptions
from yaie.core.errors import InvalidRequestError
from yaie.core.params_lists import MAX_LOGPROB_TOKEN_IDS as MAX_LOGPROB_TOKEN_IDS
from yaie.core.params_lists import MAX_STOP_TOKEN_IDS as MAX_STOP_TOKEN_IDS
from yaie.core.params_lists import as_tuples, check_kinds, check_sizes
from yaie.core.ranges import LARGEST, RANGES, SAMPLED, shown
from yaie.core.ranges import MAX_LOGPROBS as MAX_LOGPROBS

_NONE: tuple[Any, ...] = ()
"""What a list holds unless it is given. There is only one such tuple."""
_BOUNDS = [(name, RANGES[name].bounds) for name in SAMPLED]


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
    min_tokens: tokens to generate at least. Before that many no end-of-sequence token and none of
        `stop_token_ids` is drawn, and stop strings are not looked for. A constraint that leaves nothing
        else to say ends the output all the same.
    stop: strings that end the output; they are not part of it. At most MAX_STOPS of them, of at most
        MAX_STOP_CHARS characters each.
    stop_token_ids: token ids that end the output, as the end-of-sequence token does.
    ignore_eos: go on after the end-of-sequence token (benchmarks).
    seed: makes this request's draws repeatable, whatever else is in the batch.
    n: how many independent outputs to generate for the prompt.
    logprobs: note the log-probability of each token drawn, and of this many most likely ones.
    logprob_token_ids: the log-probabilities of these tokens, in the place of the most likely ones;
        goes with `logprobs`.
    prompt_logprobs: the same for each token of the prompt. Its K and V are then computed anew, because
        a cached prefix has no logits.
    logit_bias: (token id, what is added to its logit) pairs; a mapping is taken too.
    constraint: what the output must look like, whatever the model would like to say.
    truncate_prompt_tokens: keep this many tokens of a longer prompt, the last ones; -1 keeps as many as
        the context holds.
    add_special_tokens: whether a prompt in text is given what the model wants around it, such as a BOS.
    pooling: the prompt is also given as one vector, `RequestOutput.embedding`: its last hidden state, or
        the mean of all its states, for which no cached prefix can be used.
    fits_context: `max_tokens` is a maximum: where the prompt leaves less room, there are as many tokens
        as it leaves. Without, such a request is refused.
    bad_words: texts whose tokens are not drawn in a row, with or without a space in front of them, as in
        vLLM: the last token is forbidden behind the others. At most MAX_BAD_WORDS of them, of at most
        MAX_STOP_CHARS characters each. A word is drawn all the same where a constraint leaves nothing
        else.
    thought: ends a thought that has so many tokens.
    include_stop_str_in_output: what ended the output is a part of its text.
    skip_special_tokens: special tokens are no part of the text.
    cache_salt: only requests with the same one share the K and V of a prefix.
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
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    constraint: Constraint | None = None
    truncate_prompt_tokens: int | None = None
    min_tokens: int = 0
    logprob_token_ids: tuple[int, ...] = ()
    add_special_tokens: bool = True
    pooling: Literal["last", "mean"] | None = None
    fits_context: bool = False
    bad_words: tuple[str, ...] = ()
    thought: ThoughtLimit | None = None
    include_stop_str_in_output: bool = False
    skip_special_tokens: bool = True
    cache_salt: str | None = None

    def __post_init__(self) -> None:
        lists = (
            self.stop,
            self.bad_words,
            self.stop_token_ids,
            self.logprob_token_ids,
            self.logit_bias,
        )
        has_lists = self.cache_salt is not None or not all(one is _NONE for one in lists)
        if has_lists:
            as_tuples(self)
        self._check_types()
        if has_lists:
            check_kinds(self)
        _require(self.pooling in (None, "last", "mean"), "pooling", "must be last or mean")
        is_constraint = self.constraint is None or isinstance(self.constraint, Constraint)
        _require(is_constraint, "constraint", "must be a Constraint")
        _require(self.pooling is None or self.n == 1, "n", "must be 1 where pooling is asked for")
        for name, (low, high, hole) in _BOUNDS:
            value = getattr(self, name)
            if value is not None and not (low <= value <= high and value != hole):
                RANGES[name].require(value, name)
        if has_lists:
            check_sizes(self)
        _require(self.min_tokens <= (self.max_tokens or self.min_tokens), "min_tokens",
                 f"must not be above max_tokens, which is {self.max_tokens}")  # fmt: skip

    def _check_types(self) -> None:
        """Of numbers and flags."""
        for name in ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty",
                     "repetition_penalty"):  # fmt: skip
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            is_finite = is_number and abs(value) <= LARGEST
            if not is_finite:
                raise _refusal(name, f"must be a finite number, got {shown(value)}")
        for name in ("top_k", "n", "min_tokens"):
            if type(value := getattr(self, name)) is not int:
                raise _refusal(name, f"must be an integer, got {shown(value)}")
        for name in (
            "max_tokens", "seed", "logprobs", "prompt_logprobs", "truncate_prompt_tokens",
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and type(value) is not int:
                raise _refusal(name, f"must be an integer, got {shown(value)}")
        for name in (
            "ignore_eos", "add_special_tokens", "fits_context", "include_stop_str_in_output",
            "skip_special_tokens",
        ):  # fmt: skip
            if type(value := getattr(self, name)) is not bool:
                raise _refusal(name, f"must be true or false, got {shown(value)}")

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken every time."""
        return self.temperature == 0.0


def _require(condition: bool, param: str, message: str) -> None:
    if not condition:
        raise _refusal(param, message)


def _refusal(param: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(f"{param} {message}", param=param)
