"""The service that the HTTP API is given: a background engine, and the name of its model there."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from yaie.core.contracts import Reply
from yaie.core.conversation import PromptOptions
from yaie.core.errors import InvalidRequestError
from yaie.core.params import SamplingParams
from yaie.engine.background.async_engine import AsyncEngine, Prompt
from yaie.engine.background.streams import RequestStream
from yaie.server.answer_form import AnswerForm
from yaie.server.direct import Direct, current
from yaie.server.extras import extend
from yaie.server.lenient.notes import Notes, current_notes, lowered
from yaie.server.model_forms import ModelForms
from yaie.server.params_beside import params_beside
from yaie.server.tenants import tenant

CALLED = {"tool_calls", "tool_call_id"}
"""What only messages of calls and of their results have."""


class Service(ModelForms):
    """One model behind one name. See `yaie.core.contracts.ModelService`."""

    def __init__(
        self,
        engine: AsyncEngine,
        served_model_name: str | None = None,
        *,
        tool_parser: str = "auto",
        reasoning_parser: str = "auto",
        is_strict: bool = False,
        hands_over: bool = False,
        event: Callable[[dict[str, Any]], bytes] | None = None,
    ) -> None:
        """`served_model_name`: None for the model's own name, known once it is loaded.
        `tool_parser`, `reasoning_parser`: see ModelForms. `is_strict`: a maximum that the context cannot
        hold is refused, not lowered. `hands_over`: blocks come from another server, or go there.
        `event`: how the API writes a chunk, if plain ones may be written to connections past it (see
        `Direct`).
        """
        super().__init__(engine, tool_parser, reasoning_parser)
        self._name = served_model_name
        self._is_strict = is_strict
        self.hands_over = hands_over
        self._event = event

    @property
    def model_name(self) -> str:
        """What clients call the model. Raises EngineUnavailableError while it loads."""
        return self._name or self.engine.info.model_name

    @property
    def max_model_len(self) -> int:
        """The longest sequence, prompt and output together."""
        return self.engine.info.max_model_len

    @property
    def sampling_defaults(self) -> dict[str, Any]:
        """Sampling parameters of requests that do not give them."""
        return self.engine.info.sampling_defaults

    async def encode_chat(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        options: PromptOptions | None = None,
        *,
        is_counted: bool = False,
    ) -> list[int]:
        """The prompt of a conversation; see `AsyncEngine.encode_chat`. Raises InvalidRequestError."""
        if tools:
            self.known_format()
        messages = self.for_template(messages, tools)
        return await self.engine.encode_chat(messages, tools, options, is_counted=is_counted)

    def for_template(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None
    ) -> list[dict[str, Any]]:
        """The messages with what the chat template wants of calls, and does not say of tools."""
        if not tools and not any(CALLED & message.keys() for message in messages):
            return messages
        return self.with_calls(messages, tools)

    async def submit_all(
        self, prompts: Sequence[Prompt], params: SamplingParams, *, priority: int = 0
    ) -> RequestStream:
        """Add what stands beside the body (grammar, tenant, limits), then `AsyncEngine.submit_all`."""
        notes = current_notes.get() or Notes()
        changes: dict[str, Any] = {}
        form: AnswerForm | None = None
        if notes.form is not None or params.constraint is not None:
            form = AnswerForm.of(params, notes)
            changes["constraint"] = await form.constraint(self, prompts[0])
        if not params.fits_context and not self._is_strict:
            changes["fits_context"] = True
        if notes.beside or tenant.get() is not None:
            changes |= params_beside(self, notes.beside, prompts[0])
        if changes:
            params = replace(params, **changes)
        try:
            stream = await self.engine.submit_all(prompts, params, priority=priority)
        except InvalidRequestError as error:
            if form is None or (blamed := form.blamed(error)) is error:
                raise
            raise blamed from error
        self._tell_maximum(stream, params)
        return stream

    def _tell_maximum(self, stream: RequestStream, params: SamplingParams) -> None:
        """In the answer's headers, if the longest of its prompts leaves less than was asked for."""
        info = self.engine.info
        longest = max(request.num_prompt_tokens for request in stream.requests)
        room = min(info.max_model_len, info.text_tokens + 1) - longest
        if params.max_tokens is not None and params.max_tokens > room:
            lowered(room)

    def extend(self, reply: Reply, body: Any) -> Reply:
        """The reply with what the body asks for beyond text (`yaie.server.extras`). From now on plain
        pieces of a streamed one go straight to the connection (`yaie.server.direct`)."""
        notes = current_notes.get() or Notes()
        if (name := notes.beside.get("request_id")) is not None:
            prefix, dash, _ = reply.id.partition("-")
            reply.id = f"{prefix}{dash}{name}"
        extended, reasoning = reply, self.reasoning
        tool_format = self.tool_format if getattr(body, "may_call_tools", False) else None
        if tool_format or reasoning or not _is_text(body, reply.requests[0].params):
            extended = extend(reply, body, self.engine.tokenizer, tool_format, reasoning)
        writer = current.get()
        if not body.stream or self._event is None or writer is None:
            return extended
        direct = Direct(extended, self._event, writer)
        self.engine.divert(reply.requests[0].request_id, direct.take)
        return direct


def _is_text(body: Any, params: SamplingParams) -> bool:
    """Whether no body field asks for more than the text of the answer."""
    asks = body.return_token_ids or body.continuous_usage or getattr(body, "echo", False)
    return not asks and params.logprobs is None and body.prompt_logprobs is None
