"""`yaie generate`: answers to prompts from the command line or stdin, all in one batch."""

import json
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from yaie.cli.console import characters, note, out, show_backend, show_parts, show_table
from yaie.cli.options import engine_options, refuse_flags, sampling_options
from yaie.cli.steps import StepLog, name_of
from yaie.core.config import EngineConfig
from yaie.core.errors import InvalidRequestError
from yaie.core.output import Submitted
from yaie.core.params import SamplingParams
from yaie.core.request import FinishReason, Request
from yaie.system.terminal import printable

if TYPE_CHECKING:
    from yaie.engine.llm_engine import LLMEngine


@engine_options(model_as="option")
@sampling_options
def generate(
    context: typer.Context,
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
    system: Annotated[str | None, typer.Option(help="The system message of each chat.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object a line, with token counts.")
    ] = False,
    steps: Annotated[
        bool, typer.Option("--steps", help="Then a table of the engine's steps.")
    ] = False,
) -> None:
    """Generate text for one or several prompts and print it."""
    _check_options(chat, system, as_json, steps)
    _check_idle(context, sampling)
    texts = [characters(text, "the prompt") for text in prompts or _from_stdin()]
    system = characters(system, "--system") if system is not None else None
    from yaie.engine.llm_engine import LLMEngine

    if steps and config.overlap == "auto":  # one step after the other reads more easily
        config = replace(config, overlap="off")
    engine = LLMEngine(config)
    show_backend(engine.info)
    show_parts(engine.parts, brief=True)
    use_chat = engine.tokenizer.has_chat_template if chat is None else chat
    if system is not None and not use_chat:
        raise InvalidRequestError("this model has no chat template, so --system has no place in it")
    ids = [_encode(engine, text, system) if use_chat else text for text in texts]
    requests = [engine.add_request(prompt, SamplingParams(**sampling))[0] for prompt in ids]
    log = StepLog(engine, requests)
    choices = _answers(engine, requests, log if steps else engine)
    for index, (text, choice) in enumerate(zip(texts, choices, strict=True)):
        if as_json:
            _write(_json_line({"prompt": text, **choice}))
        else:
            answer = printable(choice["text"]) if out.is_terminal else choice["text"]
            _write(f"{name_of(index)}: {answer}" if steps else answer)
    if steps:
        _write("")
        show_table(log.table(out.width))
    elif not as_json and (cut := _cut_off(engine, sampling.get("max_tokens"), choices)):
        note(cut)


def _write(line: str) -> None:
    """To the byte: `typer.echo` leaves out what it takes for codes of a terminal."""
    print(line, flush=True)


def _cut_off(engine: "LLMEngine", max_tokens: int | None, choices: Sequence[dict[str, Any]]) -> str:
    """A sentence on answers that did not end by themselves, or ""."""
    cut = sum(choice["finish_reason"] == FinishReason.LENGTH for choice in choices)
    if not cut:
        return ""
    which = "The answer is" if len(choices) == 1 else f"{cut} of {len(choices)} answers are"
    if max_tokens is not None:
        return f"{which} cut off after {max_tokens} tokens: --max-tokens N sets another limit."
    room = min(engine.max_model_len, engine.text_tokens + 1)
    return f"{which} cut off: prompt and answer fill the context of {room:,} tokens."


def _json_line(answer: dict[str, Any]) -> str:
    """As it is read best, but exact wherever it goes: with escapes where the output is not UTF-8, and
    for the control characters that JSON would take as they are."""
    knows_all = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")
    line = json.dumps(answer, ensure_ascii=not knows_all)
    return re.sub(r"[\x7f-\x9f]", lambda found: f"\\u{ord(found[0]):04x}", line)


def _check_options(chat: bool | None, system: str | None, as_json: bool, steps: bool) -> None:
    """Refuse what contradicts itself before a model is loaded for nothing."""
    if system is not None and chat is False:
        raise InvalidRequestError(
            "--system is for a chat: leave out --raw, or put it in the prompt"
        )
    if as_json and steps:
        raise InvalidRequestError("--steps is a table for people: leave out --json")


def _check_idle(context: typer.Context, sampling: dict[str, Any]) -> None:
    """Refuse flags that would do nothing."""
    if sampling["temperature"] == 0:
        why = "at temperature 0 the most likely token is always taken; add --temperature 1"
        refuse_flags(context, dict.fromkeys(("top_k", "top_p", "min_p"), why))


def _from_stdin() -> list[str]:
    text = sys.stdin.read().strip() if not sys.stdin.isatty() else ""
    if not text:
        raise InvalidRequestError(
            "there is no prompt: give one as an argument, or pipe it to stdin"
        )
    return [text]


def _encode(engine: "LLMEngine", text: str, system: str | None) -> list[int]:
    turns = [{"role": "system", "content": system}] if system is not None else []
    return engine.encode_chat([*turns, {"role": "user", "content": text}])


def _answers(
    engine: "LLMEngine", requests: list[Request], stepper: "LLMEngine | StepLog"
) -> list[dict[str, Any]]:
    """Run these requests to their end, each step through `stepper`. A reply of its own for each of them
    counts its tokens."""
    replies = {
        request.request_id: engine.api.TextReply(engine.model_name, [Submitted.of(request)])
        for request in requests
    }
    while engine.has_work:
        for output in stepper.step():
            replies[output.request_id].add(output)
    whole = [reply.result() for reply in replies.values()]
    return [
        {
            "text": reply["choices"][0]["text"],
            "finish_reason": reply["choices"][0]["finish_reason"],
            "usage": reply["usage"],
        }
        for reply in whole
    ]
