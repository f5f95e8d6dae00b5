"""What a request to continue texts may hold; `schemas.py` says how that is checked. Given."""

from typing import Annotated, Any, cast

from pydantic import Field, model_validator

from yaie.core.errors import InvalidRequestError
from yaie.core.fields import (
    FAST,
    MAX_CHOICES,
    MAX_PROMPTS,
    Flag,
    Integer,
    PromptToken,
    Text,
    bounded,
    or_say,
    ranged,
)
from yaie.core.ranges import RANGES

from .shared import Shared

COMPLETION_MAX_TOKENS = 16
"""OpenAI's default for `/v1/completions`."""

Tokens = Annotated[list[PromptToken], FAST]
Prompt = Annotated[
    Text
    | Annotated[list[Text], Field(max_length=MAX_PROMPTS), FAST]
    | Tokens
    | Annotated[list[Tokens], Field(max_length=MAX_PROMPTS), FAST],
    or_say(
        f"It must be a string, token ids, or a list of at most {MAX_PROMPTS} strings or of lists of "
        f"token ids. An id is {RANGES['token'].told}."
    ),
]


class CompletionRequest(Shared):
    """The body of `POST /v1/completions`."""

    prompt: Prompt
    max_tokens: Integer | None = ranged("max_tokens", "0 only with echo.", minimum=0)
    add_special_tokens: Flag | None = Field(
        None, description="Extension. False: no BOS and the like in front of a prompt in text."
    )
    echo: Flag | None = Field(None, description="The prompt comes back in front of the text.")
    logprobs: Integer | None = ranged("logprobs")
    # Not supported: only what happens anyway.
    suffix: None = None
    best_of: Integer | None = bounded("n", "Not supported unless it is n.")

    @model_validator(mode="after")
    def _best_of_is_n(self) -> "CompletionRequest":
        if self.best_of not in (None, self.n or 1):
            raise InvalidRequestError("best_of is not supported unless it is n.", param="best_of")
        return self

    @property
    def token_limit(self) -> int | None:
        if self.is_only_echo:
            return 1  # the engine generates at least one; `yaie.server.extras` hides it
        return COMPLETION_MAX_TOKENS if self.max_tokens is None else self.max_tokens

    @property
    def is_only_echo(self) -> bool:
        """Whether nothing but the prompt is wanted, for its log-probabilities as a rule."""
        return bool(self.echo) and self.max_tokens == 0

    def _beyond_text(self) -> dict[str, Any]:
        of_prompt = self.prompt_logprobs
        if of_prompt is None and self.echo:
            of_prompt = self.logprobs
        special = self.add_special_tokens
        return {
            "logprobs": self.logprobs,
            "prompt_logprobs": of_prompt,
            "add_special_tokens": special,
        }

    def prompts(self) -> list[str | list[int]]:
        """The prompts, one or many. Raises InvalidRequestError if there is none, or too many choices."""
        if self.prompt == []:
            raise InvalidRequestError("prompt: It must not be empty.", param="prompt")
        is_one = isinstance(self.prompt, str) or isinstance(self.prompt[0], int)
        prompts = cast("list[str | list[int]]", [self.prompt] if is_one else self.prompt)
        if len(prompts) * (self.n or 1) > MAX_CHOICES:
            message = (
                f"n times the prompts is more than {MAX_CHOICES}, which one request may ask for."
            )
            raise InvalidRequestError(message, param="n")
        return prompts
