"""Who speaks in a conversation, and how it becomes a prompt."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ROLES = ("system", "developer", "user", "assistant", "tool")


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
