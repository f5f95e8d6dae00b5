"""What an answer has beyond text: log-probabilities, the prompt's echo, calls of tools.

The API part makes plain answers (`yaie.core.contracts.Reply`). Each class here stands around one,
changes the outputs that it is given and adds to the dicts that come out. So the part need not know of
any of it.

    ToolCalls or Echo    what of the text is a call; the prompt in front of it
      -> Logprobs        entries for the tokens of each piece of text
        -> the reply     OpenAI's shape
"""

from typing import Any

from yaie.core.contracts import Reply
from yaie.server.extras.echo import Echo
from yaie.server.extras.logprobs import ChatLogprobs, TextLogprobs
from yaie.server.extras.tool_calls import ToolCalls
from yaie.server.tools import ToolFormat

__all__ = ["extend"]


def extend(reply: Reply, body: Any, tokenizer: Any, tool_format: ToolFormat | None) -> Reply:
    """`reply` with what `body` asks for. body: a ChatRequest or a CompletionRequest of the API part.

    tool_format: None if the body may not call tools.
    """
    params = reply.requests[0].params
    if hasattr(body, "messages"):
        if params.logprobs is not None:
            reply = ChatLogprobs(reply, tokenizer)
        if tool_format is not None:
            names = {tool.function.name for tool in body.tools}
            reply = ToolCalls(reply, tool_format, names)
        return reply
    if params.logprobs is not None:
        reply = TextLogprobs(reply, tokenizer, with_prompt=bool(body.echo))
    if body.echo:
        reply = Echo(reply, body, tokenizer)
    return reply
