"""What an answer has beyond text: log-probabilities, token ids, the prompt's echo, calls of tools,
reasoning, usage in every chunk.

The API part makes plain answers (`yaie.core.contracts.Reply`). Each class here stands around one,
changes the outputs that it is given and adds to the dicts that come out. So the part need not know of
any of it.

    ContinuousUsage        the counts so far, in every chunk
      -> Reasoning           what of the text comes before the answer
        -> ToolCalls or Echo   what of the rest is a call; the prompt in front of it
          -> Logprobs            entries for the tokens of each piece of text
            -> TokenIds            the ids of these tokens, and of the prompt
              -> the reply           OpenAI's shape
"""

from typing import Any

from yaie.core.contracts import Reply
from yaie.core.errors import InvalidRequestError
from yaie.server.extras.echo import Echo
from yaie.server.extras.logprobs import ChatLogprobs, TextLogprobs
from yaie.server.extras.prompt_logprobs import PromptLogprobs
from yaie.server.extras.reasoning import Reasoning, ReasoningFormat
from yaie.server.extras.token_ids import TokenIds
from yaie.server.extras.tool_calls import ToolCalls
from yaie.server.extras.usage import ContinuousUsage
from yaie.server.tools import ToolFormat

__all__ = ["extend"]

MOST_IN_CHUNK = 1 << 15
"""Log-probabilities of a prompt: they take some 40 ms to write."""


def extend(
    reply: Reply,
    body: Any,
    tokenizer: Any,
    tool_format: ToolFormat | None,
    reasoning: ReasoningFormat | None = None,
) -> Reply:
    """`reply` with what `body` asks for. body: a ChatRequest or a CompletionRequest of the API part.

    tool_format: None if the body may not call tools. reasoning: None if the model does not reason.
    """
    reply = _extended(reply, body, tokenizer, tool_format, reasoning)
    return ContinuousUsage(reply) if body.continuous_usage else reply


def _extended(
    reply: Reply,
    body: Any,
    tokenizer: Any,
    tool_format: ToolFormat | None,
    reasoning: ReasoningFormat | None,
) -> Reply:
    params = reply.requests[0].params
    if body.stream:
        _check_chunks(reply, body)
    is_chat = hasattr(body, "messages")
    if body.return_token_ids:
        reply = TokenIds(reply, is_chat=is_chat)
    if body.prompt_logprobs is not None:
        reply = PromptLogprobs(reply, tokenizer, is_chat=is_chat)
    if is_chat:
        if params.logprobs is not None:
            reply = ChatLogprobs(reply, tokenizer)
        below = reply
        if tool_format is not None:
            reply = ToolCalls(reply, tool_format, body.callable_functions)
        if reasoning is not None and body.separate_reasoning is not False:
            reply = Reasoning(reply, below, reasoning, body, tokenizer)
        return reply
    if params.logprobs is not None:
        reply = TextLogprobs(reply, tokenizer, with_prompt=bool(body.echo))
    if body.echo:
        reply = Echo(reply, body, tokenizer)
    return reply


def _check_chunks(reply: Reply, body: Any) -> None:
    """Raise InvalidRequestError for a stream whose first chunk would hold more log-probabilities of the
    prompt than can be written without holding up other streams."""
    told = reply.requests[0].params.prompt_logprobs
    if told is None or not getattr(body, "echo", False):
        return
    longest = max(request.num_prompt_tokens for request in reply.requests)
    if longest * (1 + told) > MOST_IN_CHUNK:
        raise InvalidRequestError(
            f"stream: a prompt is echoed in one chunk, and this one would hold {longest * (1 + told)} "
            f"log-probabilities ({longest} tokens by logprobs + 1), more than {MOST_IN_CHUNK}. Leave "
            "out stream, or lower logprobs.",
            param="stream",
        )
