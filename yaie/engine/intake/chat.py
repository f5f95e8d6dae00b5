"""From a conversation to a prompt. It needs a tokenizer and no engine."""

from typing import Any

from yaie.engine.intake.limits import check_messages
from yaie.models.tokenizer import Tokenizer

Json = dict[str, Any]


def encode_chat(
    tokenizer: Tokenizer,
    messages: list[Json],
    tools: list[Json] | None = None,
    *,
    add_generation_prompt: bool = True,
) -> list[int]:
    """The token ids of a conversation, by the model's chat template.

    tools: JSON schemas of functions that the model may call. Raises InvalidRequestError.
    """
    return tokenizer.apply_chat_template(
        check_messages(messages), tools=tools, add_generation_prompt=add_generation_prompt
    )
