"""How one request wants its tokens drawn."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from yaie.core.errors import InvalidRequestError
from yaie.core.ranges import LARGEST, RANGES, SAMPLED, Range, shown
from yaie.core.ranges import MAX_LOGPROBS as MAX_LOGPROBS

MAX_LOGIT_BIASES = 1024
ROLES = ("system", "developer", "user", "assistant", "tool")
MAX_STOPS = 64
MAX_STOP_CHARS = 256
"""Of one stop string: what is held back, and looked through at each token, is no longer."""
MAX_STOP_TOKEN_IDS = 1024
MAX_LOGPROB_TOKEN_IDS = 128
MAX_BAD_WORDS = 128
MAX_SALT_CHARS = 256


def _require(condition: bool, param: str, message: str) -> None:
    if not condition:
        raise _refusal(param, message)


def _refusal(param: str, message: str) -> InvalidRequestError:
    return InvalidRequestError(f"{param} {message}", param=param)


def _require_range(limits: Range, value: float, param: str, what: str = "") -> None:
    """what: which of the numbers of `param` it is, if there are several."""
    if not limits.holds(value):
        of = f": {what} " if what else " "
        raise InvalidRequestError(f"{param}{of}{limits.complaint(value)}", param=param)


@dataclass(frozen=True, slots=True)
class Constraint:
    """A language that the output must belong to.

    kind: "json_object" (any JSON object, `text` is ""), "json_schema" (`text` is the schema, as JSON),
        "lark" (`text` is a grammar in the dialect of llguidance) or "gbnf" (in llama.cpp's). "tools"
        never reaches the engine: it is what `yaie.server.tools.ToolFormat.grammar` is given, as JSON,
        and becomes "lark".
    """

    kind: Literal["json_object", "json_schema", "lark", "gbnf", "tools"]
    text: str = ""


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """How a conversation becomes a prompt.

    add_generation_prompt: end where the assistant begins to speak.
    continue_final_message: end inside the last message, which the answer then continues.
    add_special_tokens: what the tokenizer puts around a text (a BOS), beside what the template writes.
    variables: for the chat template, which ignores those that it does not know.
    """

    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    variables: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ThoughtLimit:
    """How long a model may think before it answers.

    num_tokens: between the two tags. begin, end: the tags as they are written. is_open: the prompt ends
    with the first of them.
    """

    num_tokens: int
    begin: str
    end: str
    is_open: bool = False


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
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        elif isinstance(self.stop, list):
            object.__setattr__(self, "stop", tuple(self.stop))
        for name in ("stop_token_ids", "logprob_token_ids", "bad_words"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        if isinstance(self.logit_bias, Mapping):
            object.__setattr__(self, "logit_bias", tuple(self.logit_bias.items()))
        self._check_types()
        self._check_ranges()

    def _check_types(self) -> None:
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
        stops_are_strings = isinstance(self.stop, tuple) and all(
            isinstance(text, str) for text in self.stop
        )
        _require(stops_are_strings, "stop", "must be a string or a list of strings")
        _require("" not in self.stop, "stop", "must not contain an empty string")
        are_words = isinstance(self.bad_words, tuple) and all(
            isinstance(word, str) and word.strip() for word in self.bad_words
        )
        _require(are_words, "bad_words", "must be a list of strings, none of them blank")
        is_salt = self.cache_salt is None or isinstance(self.cache_salt, str)
        _require(
            is_salt and self.cache_salt != "", "cache_salt", "must be a string, not an empty one"
        )
        for name in ("stop_token_ids", "logprob_token_ids"):
            ids = getattr(self, name)
            are_ints = isinstance(ids, tuple) and all(type(token) is int for token in ids)
            _require(are_ints, name, "must be a list of integers")
        _require(_are_biases(self.logit_bias), "logit_bias", "must map token ids to finite numbers")
        _require(self.pooling in (None, "last", "mean"), "pooling", "must be last or mean")
        is_constraint = self.constraint is None or isinstance(self.constraint, Constraint)
        _require(is_constraint, "constraint", "must be a Constraint")

    def _check_ranges(self) -> None:
        _require(self.pooling is None or self.n == 1, "n", "must be 1 where pooling is asked for")
        for name in SAMPLED:
            if (value := getattr(self, name)) is not None:
                _require_range(RANGES[name], value, name)
        _require(len(self.stop) <= MAX_STOPS, "stop", f"may list at most {MAX_STOPS} strings")
        for index, stop in enumerate(self.stop):
            _require(len(stop) <= MAX_STOP_CHARS, "stop",
                     f"may hold strings of at most {MAX_STOP_CHARS} characters; the one at index "
                     f"{index} has {len(stop)}. Give a shorter part of it.")  # fmt: skip
        _require(len(self.bad_words) <= MAX_BAD_WORDS, "bad_words",
                 f"may list at most {MAX_BAD_WORDS} strings")  # fmt: skip
        longest = max(map(len, self.bad_words), default=0)
        _require(longest <= MAX_STOP_CHARS, "bad_words",
                 f"may hold strings of at most {MAX_STOP_CHARS} characters, not {longest}")  # fmt: skip
        _require(len(self.cache_salt or "") <= MAX_SALT_CHARS, "cache_salt",
                 f"may have at most {MAX_SALT_CHARS} characters")  # fmt: skip
        _require(len(self.stop_token_ids) <= MAX_STOP_TOKEN_IDS, "stop_token_ids",
                 f"may list at most {MAX_STOP_TOKEN_IDS} tokens")  # fmt: skip
        _require(len(self.logprob_token_ids) <= MAX_LOGPROB_TOKEN_IDS, "logprob_token_ids",
                 f"may list at most {MAX_LOGPROB_TOKEN_IDS} tokens")  # fmt: skip
        _require(self.logprobs is not None or not self.logprob_token_ids, "logprob_token_ids",
                 "may only be given together with logprobs")  # fmt: skip
        _require(self.min_tokens <= (self.max_tokens or self.min_tokens), "min_tokens",
                 f"must not be above max_tokens, which is {self.max_tokens}")  # fmt: skip
        _require(len(self.logit_bias) <= MAX_LOGIT_BIASES, "logit_bias",
                 f"may name at most {MAX_LOGIT_BIASES} tokens")  # fmt: skip
        for name in ("stop_token_ids", "logprob_token_ids"):
            for index, token in enumerate(getattr(self, name)):
                _require_range(RANGES["token"], token, f"{name}[{index}]")
        for token, bias in self.logit_bias:
            _require_range(RANGES["biased_token"], token, "logit_bias", "token")
            _require_range(RANGES["logit_bias"], bias, "logit_bias", f"the bias of {token}")

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


def whole_distribution(vocab_size: int) -> SamplingParams:
    """One token, with the log-probability of every token of the vocabulary.

    No client can ask for so many: that is why MAX_LOGPROBS is only checked on construction.
    """
    params = SamplingParams(
        temperature=0.0, max_tokens=1, ignore_eos=True, logprobs=0, fits_context=True
    )
    object.__setattr__(params, "logprobs", vocab_size)
    return params


def _are_biases(pairs: object) -> bool:
    return isinstance(pairs, tuple) and all(
        type(token) is int and isinstance(bias, int | float) and abs(bias) <= LARGEST
        for token, bias in pairs
    )
