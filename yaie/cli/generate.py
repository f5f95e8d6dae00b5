"""`yaie generate`: answers to prompts from the command line or stdin, all in one batch."""

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from yaie.cli.console import show_parts
from yaie.cli.options import engine_options, sampling_options
from yaie.core.config import EngineConfig
from yaie.core.errors import InvalidRequestError
from yaie.core.params import SamplingParams

if TYPE_CHECKING:
    from yaie.engine.llm_engine import LLMEngine


@engine_options(model_as="option")
@sampling_options
def generate(
    config: EngineConfig,
    sampling: dict[str, Any],
    prompts: Annotated[
        list[str] | None, typer.Argument(help="One answer each; read from stdin if there is none.")
    ] = None,
    chat: Annotated[
        bool | None,
        typer.Option(
            "--chat/--raw",
            help="Ask as in a chat, or let the model continue the text.",
            show_default="chat if the model has a chat template",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object a line, with token counts.")
    ] = False,
) -> None:
    """Generate text for one or several prompts and print it."""
    texts = prompts or _from_stdin()
    from yaie.engine.llm_engine import LLMEngine

    engine = LLMEngine(config)
    show_parts(engine.parts, brief=True)
    use_chat = engine.tokenizer.has_chat_template if chat is None else chat
    choices = _answers(engine, texts, SamplingParams(**sampling), use_chat)
    for text, choice in zip(texts, choices, strict=True):
        if as_json:
            typer.echo(json.dumps({"prompt": text, **choice}, ensure_ascii=False))
        else:
            typer.echo(choice["text"])


def _from_stdin() -> list[str]:
    text = sys.stdin.read().strip() if not sys.stdin.isatty() else ""
    if not text:
        raise InvalidRequestError(
            "there is no prompt: give one as an argument, or pipe it to stdin"
        )
    return [text]


def _answers(
    engine: "LLMEngine", texts: list[str], params: SamplingParams, use_chat: bool
) -> list[dict[str, Any]]:
    requests = []
    for text in texts:
        turn = {"role": "user", "content": text}
        prompt = engine.encode_chat([turn]) if use_chat else text
        requests += engine.add_request(prompt, params)
    reply = engine.api.TextReply(engine.model_name, requests)
    while engine.has_work:
        for output in engine.step():
            reply.add(output)
    return [
        {
            "text": choice["text"],
            "finish_reason": choice["finish_reason"],
            "usage": engine.api.usage([request]),
        }
        for choice, request in zip(reply.result()["choices"], requests, strict=True)
    ]
