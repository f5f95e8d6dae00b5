"""The range of every number that a request may hold, in any of the API's dialects: one table.

`SamplingParams` checks its numbers by it, the server's bodies theirs (`yaie.core.fields`), the OpenAPI
document tells it to clients, and `book/src/http-reference.md` has it as a table. A number without a row
here does not get into a body: `tests/server/test_ranges.py` looks for one.
"""

from yaie.core.range import LARGEST as LARGEST
from yaie.core.range import Range as Range
from yaie.core.range import shown as shown

MAX_LOGPROBS = 20
MAX_BIAS = 100.0
MAX_N = 128
MAX_TOKENS = 2**31 - 1
"""Of counts of tokens, and of token ids: positions are 32-bit integers on the device."""
MAX_SEED = 2**63 - 1
MAX_EXACT = 2**53 - 1
"""The largest integer that every JSON parser reads exactly (RFC 8259, section 6)."""

_ROWS = (
    Range("temperature", 0, 100, "", "0 takes the most likely token, else logits are divided by it"),
    Range("top_p", 0, 1, "probability", "sample from the most likely tokens that reach this share",
          above=True),
    Range("top_k", -1, MAX_TOKENS, "tokens", "sample from so many most likely ones; 0 and -1 are off"),
    Range("min_p", 0, 1, "share", "sample from tokens this likely, relative to the most likely one"),
    Range("presence_penalty", -2, 2, "logits", "against tokens that were generated"),
    Range("frequency_penalty", -2, 2, "logits", "against them by their number"),
    Range("repetition_penalty", 0, 10, "factor", "against tokens of prompt and output", above=True),
    Range("logit_bias", -MAX_BIAS, MAX_BIAS, "logits", "what is added to the logit of a token",
          fields=("logit_bias.*",)),
    Range("max_tokens", 1, MAX_TOKENS, "tokens",
          "to generate at most; in completions 0 as well, together with echo",
          fields=("max_tokens", "max_completion_tokens", "max_output_tokens")),
    Range("min_tokens", 0, MAX_TOKENS, "tokens", "to generate at least; not above max_tokens"),
    Range("n", 1, MAX_N, "answers", "to one prompt", fields=("n", "best_of")),
    Range("seed", -MAX_SEED - 1, MAX_SEED, "", "the same one gives the same tokens"),
    Range("logprobs", 0, MAX_LOGPROBS, "tokens", "most likely ones to tell of at each token",
          fields=("logprobs", "top_logprobs")),
    Range("prompt_logprobs", 0, MAX_LOGPROBS, "tokens", "the same at each token of the prompt"),
    Range("truncate_prompt_tokens", -1, MAX_TOKENS, "tokens",
          "of a longer prompt to keep; -1 keeps what fits", hole=0),
    Range("priority", -MAX_EXACT, MAX_EXACT, "", "smaller goes first"),
    Range("token", 0, MAX_TOKENS, "token id", "one that the model knows, which is checked next",
          fields=("prompt[]", "prompt[][]", "input[]", "input[][]", "tokens[]", "stop_token_ids[]",
                  "logprob_token_ids[]")),
    Range("biased_token", 0, 999_999_999, "token id", "the same, written as a string",
          fields=("keys of logit_bias",)),
    Range("dimensions", 1, MAX_TOKENS, "numbers", "of a vector to keep; at most those that there are"),
    Range("thinking_token_budget", -1, MAX_TOKENS, "tokens",
          "of a thought, at most; -1 is no limit"),
    Range("budget_tokens", 1024, MAX_TOKENS, "tokens", "of a thought, at most",
          fields=("thinking.budget_tokens",)),
    Range("index", 0, MAX_TOKENS, "", "of a streamed call; has no effect",
          fields=("messages[].tool_calls[].index",)),
    Range("json", -LARGEST, LARGEST, "",
          "any number in a schema, in the arguments of a call and in variables for the chat template: "
          "what a 64-bit float can hold",
          fields=("numbers in JSON that is passed on",)),
)  # fmt: skip

RANGES: dict[str, Range] = {row.name: row for row in _ROWS}

SAMPLED = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "max_tokens", "min_tokens", "n", "seed", "logprobs", "prompt_logprobs",
    "truncate_prompt_tokens",
)  # fmt: skip
"""The numbers that `SamplingParams` has, under the same names."""
