"""How the model behind a service writes what is not plain text: calls of tools, and what it thinks."""

from functools import cached_property
from typing import Any

from yaie.core.contracts import Reply
from yaie.core.errors import InvalidRequestError
from yaie.engine.background.async_engine import AsyncEngine
from yaie.server.extras import read
from yaie.server.extras.reasoning import ReasoningFormat, choose_reasoning
from yaie.server.extras.reply import ExtendedReply
from yaie.server.tools import ToolFormat, choose_format, with_names_of_tools

Json = dict[str, Any]


class ModelForms:
    """Of the model of an engine; found when they are first asked for."""

    def __init__(self, engine: AsyncEngine, tool_parser: str, reasoning_parser: str) -> None:
        """`tool_parser`: see `choose_format`. `reasoning_parser`: see `choose_reasoning`."""
        self.engine = engine
        self._tool_parser = tool_parser
        self._reasoning_parser = reasoning_parser

    @property
    def model_name(self) -> str:
        """What clients call the model."""
        raise NotImplementedError

    @cached_property
    def tool_format(self) -> ToolFormat | None:
        """How the model writes calls of tools; None if it cannot be told about tools."""
        tokenizer = self.engine.tokenizer
        return choose_format(self._tool_parser, tokenizer.chat_template, tokenizer.special_token_id)

    @cached_property
    def reasoning(self) -> ReasoningFormat | None:
        """How the model writes what it thinks before it answers; None if it does not."""
        tokenizer = self.engine.tokenizer
        return choose_reasoning(self._reasoning_parser, tokenizer.chat_template, tokenizer)

    def known_format(self) -> ToolFormat:
        """The tool format. Raises InvalidRequestError if there is none."""
        if self.tool_format is None:
            raise InvalidRequestError(
                f"tools: {self.model_name!r} cannot call tools here: its chat template does not say how "
                'in a form that this server knows. Leave them out, or set tool_choice to "none".',
                param="tools",
            )
        return self.tool_format

    def with_calls(self, messages: list[Json], tools: list[Json] | None) -> list[Json]:
        """The messages with what the chat template wants of calls, and does not say of tools."""
        messages = with_names_of_tools(messages)
        if self.tool_format is None:
            return messages
        return self.tool_format.conversation(messages, tools)

    def read(self, reply: Reply, body: Any) -> ExtendedReply:
        """The reply to a ChatRequest, for another that tells its pieces in a shape of its own."""
        tool_format = self.tool_format if body.may_call_tools else None
        return read(reply, body, self.engine.tokenizer, tool_format, self.reasoning)
