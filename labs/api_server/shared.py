"""What both kinds of completion share: how the output is sampled, and how it is sent. Given."""

from typing import Annotated, Any

from pydantic import Field, model_validator

from yaie.core.errors import InvalidRequestError
from yaie.core.fields import (
    FAST,
    Always,
    Fields,
    Flag,
    Integer,
    Labels,
    LogitBias,
    Never,
    Number,
    Stops,
    Token,
    bounded,
    ranged,
)
from yaie.core.params import MAX_LOGPROB_TOKEN_IDS, MAX_STOP_TOKEN_IDS, SamplingParams


class StreamOptions(Fields):
    include_usage: Flag = False
    continuous_usage_stats: Flag = Field(False, description="Extension. Usage in every chunk.")
    include_obfuscation: Never = False


class Shared(Fields):
    """What both kinds of completion share."""

    model: str | None = Field(None, description="The served model; may be left out.")
    stream: Flag | None = None
    stream_options: StreamOptions | None = None
    temperature: Number | None = ranged("temperature")
    top_p: Number | None = ranged("top_p")
    top_k: Integer | None = ranged("top_k", "Extension. 0 or -1 is off.")
    min_p: Number | None = ranged("min_p", "Extension.")
    presence_penalty: Number | None = ranged("presence_penalty")
    frequency_penalty: Number | None = ranged("frequency_penalty")
    repetition_penalty: Number | None = ranged("repetition_penalty", "Extension.")
    max_tokens: Integer | None = ranged("max_tokens")
    min_tokens: Integer | None = ranged("min_tokens", "Extension. Nothing ends the output before.")
    stop: Stops | None = None
    stop_token_ids: Annotated[list[Token], FAST] | None = Field(
        None, description="Extension.", max_length=MAX_STOP_TOKEN_IDS
    )
    ignore_eos: Flag | None = Field(None, description="Extension.")
    logit_bias: LogitBias | None = None
    seed: Integer | None = ranged("seed")
    n: Integer | None = ranged("n")
    truncate_prompt_tokens: Integer | None = ranged(
        "truncate_prompt_tokens",
        "Extension. Keep this many tokens of a longer prompt, the last ones; -1 keeps what fits.",
    )
    priority: Integer | None = bounded(
        "priority", "Extension. Smaller goes first, with --policy priority."
    )
    prompt_logprobs: Integer | None = ranged("prompt_logprobs", "Extension. Not with stream.")
    logprob_token_ids: Annotated[list[Token], FAST] | None = Field(
        None,
        description="Extension. Their log-probabilities instead of those of the most likely tokens.",
        max_length=MAX_LOGPROB_TOKEN_IDS,
    )
    return_token_ids: Flag | None = Field(
        None, description="Extension. The ids of prompt and output beside the text."
    )
    user: str | None = Field(None, description="A label; has no effect.")
    metadata: Labels | None = Field(None, description="Labels; have no effect.")
    # Not supported: only what happens anyway. Routers send these with every request.
    no_stop_trim: Never | None = None
    skip_special_tokens: Always | None = None
    return_hidden_states: Never | None = None

    @model_validator(mode="after")
    def _usage_needs_a_stream(self) -> "Shared":
        if self.stream_options is not None and not self.stream:
            message = "stream_options may only be given together with stream: true."
            raise InvalidRequestError(message, param="stream_options")
        return self

    @model_validator(mode="after")
    def _prompt_logprobs_need_a_whole_answer(self) -> "Shared":
        if self.prompt_logprobs is not None and self.stream:
            message = "prompt_logprobs is not available together with stream: true."
            raise InvalidRequestError(message, param="prompt_logprobs")
        return self

    @property
    def continuous_usage(self) -> bool:
        """Whether every chunk of the stream has its usage so far."""
        return self.stream_options is not None and self.stream_options.continuous_usage_stats

    @property
    def include_usage(self) -> bool:
        """Whether the stream ends with a usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage

    def sampling_params(self, defaults: dict[str, Any]) -> SamplingParams:
        """The checked SamplingParams of the request. Raises InvalidRequestError. A parameter that is
        null counts as absent.

        defaults: for absent ones, where they differ from those of SamplingParams, which are OpenAI's.
        """
        given = {name: getattr(self, name) for name in _SAMPLING}
        given |= {"max_tokens": self.token_limit, **self._beyond_text()}
        if self.logit_bias is not None:
            given["logit_bias"] = {int(token): bias for token, bias in self.logit_bias.items()}
        present = {name: value for name, value in given.items() if value is not None}
        return SamplingParams(**(defaults | present))

    @property
    def token_limit(self) -> int | None:
        """Tokens to generate at most, under whichever name it was given."""
        return self.max_tokens

    def _beyond_text(self) -> dict[str, Any]:
        """Sampling parameters that are called otherwise in a request."""
        raise NotImplementedError


_SAMPLING = SamplingParams.__dataclass_fields__.keys() & Shared.model_fields.keys()
