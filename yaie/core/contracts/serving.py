"""Lab 8: what the HTTP API is given, and what it must offer."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from yaie.core.conversation import PromptOptions
    from yaie.core.errors import InvalidRequestError
    from yaie.core.output import RequestOutput, Submitted
from yaie.core.params import SamplingParams


# ANCHOR: api_server
class OutputStream(Protocol):
    """Given to lab 8. The outputs of all requests of one call, as they come: `async for` it.

    requests: in the order of their choices, by prompt, then by `n`. An output may arrive for any of
    them; the stream ends after each has had its last one. Iterating raises EngineDeadError or
    EngineUnavailableError if the engine ends before that.
    submitted_at, first_output_at: when, on the clock of `time.perf_counter`.
    """

    requests: "list[Submitted]"
    submitted_at: float
    first_output_at: float | None

    def __aiter__(self) -> "AsyncIterator[RequestOutput]": ...

    async def __anext__(self) -> "RequestOutput": ...

    async def aclose(self) -> None:
        """Want no more: requests that still run are aborted. Twice, or after the end, is harmless."""
        ...


class ModelService(Protocol):
    """Given to lab 8. One model behind one name; lives on the event loop that serves HTTP.

    Every member raises EngineUnavailableError while the model loads, unless it is known by then.
    """

    @property
    def model_name(self) -> str:
        """What clients call the model."""
        ...

    @property
    def max_model_len(self) -> int:
        """The longest sequence in tokens, prompt and output together."""
        ...

    @property
    def sampling_defaults(self) -> dict[str, Any]:
        """Fields of SamplingParams that hold for a request which does not give them."""
        ...

    async def encode_chat(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        options: "PromptOptions | None" = None,
    ) -> list[int]:
        """The prompt of a conversation, with the functions that the model may call. options: how it
        ends, and what else the chat template is given.

        Raises InvalidRequestError that names the bad message, or tools that the model cannot call.
        """
        ...

    async def submit_all(
        self, prompts: Sequence[str | list[int]], params: "SamplingParams", *, priority: int = 0
    ) -> OutputStream:
        """Queue several prompts as one stream: all are admitted, or none.

        Raises InvalidRequestError, EngineOverloadedError, EngineUnavailableError or EngineDeadError.
        """
        ...

    def extend(self, reply: "Reply", body: Any) -> "Reply":
        """The reply to a request, with what its body asks for beyond text: log-probabilities, token
        ids, the prompt's echo, tool calls. It is used in the place of `reply`, which it may be
        itself. Of a streamed answer, the server may write plain pieces to the connection by itself:
        they never come to `chunks`."""
        ...


class Reply(Protocol):
    """Lab 8. One answer to one call, in OpenAI's shape, as plain dicts.

    It is made of a model's name and the call's requests. `add` and `result` make a whole answer,
    `chunks` and `usage_chunk` a streamed one. A chunk costs its own text.
    """

    id: str
    requests: "Sequence[Submitted]"
    include_usage: bool

    def add(self, output: "RequestOutput") -> None:
        """Take over an output. Raises YaieError if its request failed."""
        ...

    def result(self) -> dict[str, Any]:
        """The whole answer, once every request has finished."""
        ...

    def chunks(self, output: "RequestOutput") -> "Iterator[dict[str, Any]]":
        """The chunks that an output makes. Raises YaieError if its request failed."""
        ...

    def usage(self) -> dict[str, Any]:
        """OpenAI's token counts of the call, as far as its outputs have come."""
        ...

    def usage_chunk(self) -> dict[str, Any]:
        """The last chunk of a stream that was asked for its usage."""
        ...


class ApiServer(Protocol):
    """Lab 8. The package itself: what the server and `LLMEngine.chat_completion` call on it."""

    @property
    def ChatReply(self) -> "Callable[[str, Sequence[Submitted]], Reply]":
        """Makes the Reply of a conversation."""
        ...

    @property
    def TextReply(self) -> "Callable[[str, Sequence[Submitted]], Reply]":
        """Makes the Reply of prompts to continue."""
        ...

    @property
    def ChatRequest(self) -> Any:
        """The body of `/v1/chat/completions`, a model of pydantic."""
        ...

    @property
    def CompletionRequest(self) -> Any:
        """The body of `/v1/completions`, a model of pydantic."""
        ...

    def make_router(self, service: ModelService) -> Any:
        """A FastAPI router with the endpoints below `/v1`, answered by `service`."""
        ...

    def install_error_handlers(self, app: Any) -> None:
        """Make a FastAPI app answer every failure as OpenAI's error object."""
        ...

    def http_error(self, status: int, message: str, headers: dict[str, str] | None = None) -> Any:
        """The Starlette response to a failure that has no exception of ours."""
        ...

    def event(self, data: dict[str, Any]) -> bytes:
        """One server-sent event."""
        ...

    def error_body(self, error: Exception) -> dict[str, Any]:
        """The error object of an exception."""
        ...

    def validation_error(self, errors: "Sequence[Any]") -> "InvalidRequestError":
        """The first of pydantic's complaints about a body as one of our errors."""
        ...

    def check_model(self, service: ModelService, name: str | None) -> None:
        """Raises ModelNotFoundError unless `name` is the served model, or None."""
        ...

    async def whole_answer(self, stream: OutputStream, reply: Reply) -> Any:
        """The Starlette response with the answer in one piece."""
        ...

    async def until_disconnect(self, receive: Any, work: Any) -> Any:
        """What `work` returns. Raises ClientDisconnect, and cancels it, if the client leaves first.

        The server keeps in context variables whose request this is: the work sees those of the caller.
        """
        ...

    def Answering(self, stream: OutputStream, reply: Reply) -> Any:
        """Surrounds all that takes outputs from a stream, and closes it."""
        ...


# ANCHOR_END: api_server
