"""From a conversation to a prompt. It needs a tokenizer and no engine."""

from typing import Any

from yaie.core.params import PromptOptions
from yaie.engine.intake.limits import check_messages
from yaie.models.text_encoder import PromptText
from yaie.models.tokenizer import Tokenizer

Json = dict[str, Any]


def encode_chat(
    tokenizer: Tokenizer,
    messages: list[Json],
    tools: list[Json] | None = None,
    options: PromptOptions | None = None,
) -> list[int]:
    """The token ids of a conversation, by the model's chat template.

    tools: JSON schemas of functions that the model may call. Raises InvalidRequestError.
    """
    return tokenizer.encode_parts(chat_text(tokenizer, messages, tools, options))


def encode_short_chat(
    tokenizer: Tokenizer,
    messages: list[Json],
    tools: list[Json] | None = None,
    options: PromptOptions | None = None,
) -> list[int] | PromptText:
    """As `encode_chat`, but a prompt that takes long is left to be tokenized."""
    text = chat_text(tokenizer, messages, tools, options)
    return text if text.is_long else tokenizer.encode_parts(text)


def chat_text(
    tokenizer: Tokenizer,
    messages: list[Json],
    tools: list[Json] | None = None,
    options: PromptOptions | None = None,
) -> PromptText:
    """A conversation, written by the model's chat template. Raises InvalidRequestError."""
    options = options or PromptOptions()
    return tokenizer.chat_text(
        check_messages(messages, keeps_parts=tokenizer.wants_parts(tools)),
        tools=tools,
        add_generation_prompt=options.add_generation_prompt,
        continue_final_message=options.continue_final_message,
        add_special_tokens=options.add_special_tokens,
        variables=options.variables,
    )
