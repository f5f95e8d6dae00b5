"""What an answer has beyond plain text: reasoning, calls of tools, the prompt's echo,
log-probabilities, token ids, usage in every chunk.

The API part makes plain answers (`yaie.core.contracts.Reply`), and need not know of any of it. One
reply stands around it where a body asks for more:

    a Reader    reads the text as typed pieces: reasoning, content, calls (`yaie.server.tools.events`)
    Steps       add to chunks and answers what belongs to their tokens
"""

from typing import Any

from yaie.core.contracts import Reply
from yaie.server.extras.echo import EchoReader, check_echo
from yaie.server.extras.logprobs import ChatLogprobs, TextLogprobs
from yaie.server.extras.prompt_logprobs import PromptLogprobs
from yaie.server.extras.reader import ChatReader, Reader
from yaie.server.extras.reasoning import ReasoningFormat
from yaie.server.extras.reply import ExtendedReply
from yaie.server.extras.step import Step
from yaie.server.extras.token_ids import TokenIds
from yaie.server.tools import ToolFormat

__all__ = ["extend", "read"]


def extend(
    reply: Reply,
    body: Any,
    tokenizer: Any,
    tool_format: ToolFormat | None,
    reasoning: ReasoningFormat | None = None,
) -> Reply:
    """`reply` with what `body` asks for; itself if that is nothing. body: a ChatRequest or a
    CompletionRequest of the API part.

    tool_format: None if the body may not call tools. reasoning: None if the model does not reason.
    """
    if body.stream and getattr(body, "echo", False):
        check_echo(reply)
    steps = _steps(reply, body, tokenizer)
    reader = _reader(reply, body, tokenizer, tool_format, reasoning)
    if reader is None and not steps and not body.continuous_usage:
        return reply
    return ExtendedReply(reply, reader or Reader(), steps, tells_usage=body.continuous_usage)


def read(
    reply: Reply,
    body: Any,
    tokenizer: Any,
    tool_format: ToolFormat | None,
    reasoning: ReasoningFormat | None,
) -> ExtendedReply:
    """The same for a reply that tells the pieces in a shape of its own, though nothing is asked for.
    body: a ChatRequest."""
    reader = _reader(reply, body, tokenizer, tool_format, reasoning)
    return ExtendedReply(reply, reader or Reader(), _steps(reply, body, tokenizer))


def _reader(
    reply: Reply,
    body: Any,
    tokenizer: Any,
    tool_format: ToolFormat | None,
    reasoning: ReasoningFormat | None,
) -> Reader | None:
    """None if all text is content."""
    if not hasattr(body, "messages"):
        return EchoReader(reply.requests, body, tokenizer) if body.echo else None
    if body.separate_reasoning is False:
        reasoning = None
    if tool_format is None and reasoning is None:
        return None
    return ChatReader(reply.requests, body, tokenizer, tools=tool_format, reasoning=reasoning)


def _steps(reply: Reply, body: Any, tokenizer: Any) -> list[Step]:
    """In the order in which their fields stand."""
    requests, is_chat = reply.requests, hasattr(body, "messages")
    params, steps = requests[0].params, list[Step]()
    if body.return_token_ids:
        steps.append(TokenIds(requests, is_chat=is_chat))
    if body.prompt_logprobs is not None:
        steps.append(PromptLogprobs(requests, tokenizer, is_chat=is_chat))
    if params.logprobs is not None and is_chat:
        steps.append(ChatLogprobs(requests, tokenizer))
    elif params.logprobs is not None:
        steps.append(TextLogprobs(requests, tokenizer, with_prompt=bool(body.echo)))
    return steps
