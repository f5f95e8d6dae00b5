"""The service that the HTTP API is given: a background engine, and the name of its model there."""

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from yaie.core.contracts import Reply
from yaie.core.errors import InvalidRequestError
from yaie.core.params import Constraint, SamplingParams
from yaie.engine.background.async_engine import AsyncEngine, Prompt
from yaie.engine.background.request_stream import RequestStream
from yaie.server.extras import extend
from yaie.server.tools import ToolFormat, choose_format, with_names_of_tools


class Service:
    """One model behind one name. See `yaie.core.contracts.ModelService`."""

    def __init__(
        self,
        engine: AsyncEngine,
        served_model_name: str | None = None,
        *,
        tool_parser: str = "auto",
    ) -> None:
        """`served_model_name`: None for the model's own name, known once it is loaded.
        `tool_parser`: see `choose_format`.
        """
        self.engine = engine
        self._name = served_model_name
        self._tool_parser = tool_parser

    @property
    def model_name(self) -> str:
        """What clients call the model. Raises EngineUnavailableError while it loads."""
        return self._name or self.engine.facts.model_name

    @property
    def max_model_len(self) -> int:
        """The longest sequence, prompt and output together."""
        return self.engine.facts.max_model_len

    @property
    def sampling_defaults(self) -> dict[str, Any]:
        """Sampling parameters of requests that do not give them."""
        return self.engine.facts.sampling_defaults

    @cached_property
    def tool_format(self) -> ToolFormat | None:
        """How the model writes calls of tools; None if it cannot be told about tools."""
        tokenizer = self.engine.tokenizer
        return choose_format(self._tool_parser, tokenizer.chat_template, tokenizer.special_token_id)

    async def encode_chat(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None
    ) -> list[int]:
        """The prompt of a conversation. Raises InvalidRequestError."""
        if tools:
            self._known_format()
        return await self.engine.encode_chat(with_names_of_tools(messages), tools)

    async def submit_all(
        self, prompts: Sequence[Prompt], params: SamplingParams, *, priority: int = 0
    ) -> RequestStream:
        """Queue several prompts as one stream: all are admitted, or none."""
        if params.constraint is None or params.constraint.kind != "tools":
            return await self.engine.submit_all(prompts, params, priority=priority)
        grammar = self._known_format().grammar(json.loads(params.constraint.text))
        params = replace(params, constraint=Constraint("lark", grammar))
        try:
            return await self.engine.submit_all(prompts, params, priority=priority)
        except InvalidRequestError as error:
            if error.param != "response_format":
                raise
            raise InvalidRequestError(f"tools: {error.message}", param="tools") from error

    def extend(self, reply: Reply, body: Any) -> Reply:
        """The reply with what the body asks for beyond text. See `yaie.server.extras`."""
        tool_format = self.tool_format if getattr(body, "may_call_tools", False) else None
        return extend(reply, body, self.engine.tokenizer, tool_format)

    def _known_format(self) -> ToolFormat:
        if self.tool_format is None:
            raise InvalidRequestError(
                f"tools: {self.model_name!r} cannot call tools here: its chat template does not say how "
                'in a form that this server knows. Leave them out, or set tool_choice to "none".',
                param="tools",
            )
        return self.tool_format
