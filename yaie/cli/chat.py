"""`yaie chat`: a conversation in the terminal.

The engine runs on its own thread, so Ctrl-C can stop an answer between two steps and leave the
engine whole. Input that is piped in is answered line by line.
"""

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from yaie.cli.chat_wrap import WordWrap
from yaie.cli.console import (
    characters,
    err,
    printable,
    say,
    show_backend,
    show_error,
    show_parts,
    state_dir,
)
from yaie.cli.options import engine_options, sampling_options
from yaie.core.compat import Runner
from yaie.core.config import EngineConfig
from yaie.core.errors import EngineDeadError, InvalidRequestError, YaieError
from yaie.core.files import cannot_write, write_whole
from yaie.core.interrupt import OwnInterrupts, is_interrupted

if TYPE_CHECKING:
    from yaie.cli.chat_session import ChatSession
    from yaie.engine.background.async_engine import AsyncEngine

HELP = """\
/reset               forget the conversation
/system TEXT         set the system message (without TEXT: show it)
/params NAME=VALUE   change how answers are drawn (without: show it)
/stats               tokens and times of the last answer
/help                this list
/exit                leave, as Ctrl-D does; Ctrl-C stops an answer"""


def _last_model() -> str | None:
    try:
        return (state_dir() / "last_model").read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):  # there is none, or it cannot be read
        return None


def _remember(model: str) -> None:
    try:
        write_whole(state_dir() / "last_model", model)
    except OSError as error:
        why = escape(cannot_write(error.filename, error))
        err.print(f"[dim]The model and what you type are not remembered: {why}.[/]", soft_wrap=True)


@engine_options(model_as="argument", last_model=_last_model)
@sampling_options
def chat(
    config: EngineConfig,
    sampling: dict[str, Any],
    system: Annotated[str | None, typer.Option(help="The system message.")] = None,
) -> None:
    """Talk to a model. Without MODEL: the one of the last time, at first the embedded tutor."""
    from yaie.cli.chat_session import ChatSession
    from yaie.engine.background.async_engine import AsyncEngine
    from yaie.engine.llm_engine import LLMEngine

    system = characters(system, "--system") if system is not None else None
    engine = AsyncEngine(lambda: LLMEngine(config))
    if sys.stdin.isatty():
        err.print(f"[dim]Loading {escape(config.model)} ...[/]")
    with Runner() as runner:
        runner.run(engine.start())
        _remember(config.model)
        show_backend(engine.facts)
        show_parts(engine.facts.parts, brief=True)
        if sys.stdin.isatty():
            err.print("[dim]/help lists the commands, Ctrl-D leaves.[/]")
        session = ChatSession(engine, sampling, system)
        # Input from a pipe has no user who could type on after Ctrl-C: there it ends the command.
        own = OwnInterrupts() if sys.stdin.isatty() else nullcontext()
        try:
            with own:
                _converse(runner, engine, session)
        finally:
            runner.run(engine.shutdown())


def _converse(runner: Runner, engine: "AsyncEngine", session: "ChatSession") -> None:
    for line in _lines():
        try:
            line = characters(line, "what you typed")
            if line == "/exit":
                return
            elif line.startswith("/"):
                _command(line, runner, engine, session)
            else:
                _answer(line, runner, session)
        except EngineDeadError:
            raise
        except YaieError as error:  # of this answer alone
            show_error(error)
        except KeyboardInterrupt:
            if is_interrupted():
                raise
            err.print("\n[dim](stopped)[/]")


def _answer(line: str, runner: Runner, session: "ChatSession") -> None:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    wrap = WordWrap(_show, width)
    try:
        runner.run(session.ask(line, lambda text: wrap.feed(printable(text))))
    finally:
        wrap.end()
    say("")


def _lines() -> Iterator[str]:
    """What the user types, or what is piped in; blank lines are skipped."""
    read = _typed() if sys.stdin.isatty() else (lambda: next(sys.stdin, None))
    while (line := read()) is not None:
        if line.strip():
            yield line.strip()


def _typed() -> Callable[[], str | None]:
    from prompt_toolkit import PromptSession

    from yaie.cli.chat_history import open_history

    prompt: PromptSession[str] = PromptSession(history=open_history(), reserve_space_for_menu=0)

    def read() -> str | None:
        try:
            return prompt.prompt("> ")
        except KeyboardInterrupt:  # clears the line
            return ""
        except EOFError:
            return None

    return read


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _command(line: str, runner: Runner, engine: "AsyncEngine", session: "ChatSession") -> None:
    name, _, rest = line.partition(" ")
    rest = rest.strip()
    match name:
        case "/help":
            say(HELP)
        case "/reset":
            session.reset()
            err.print("[dim]Forgotten.[/]")
        case "/system":
            session.system = rest or session.system
            say(f"system: {session.system or '(none)'}")
        case "/params":
            session.set_params(rest.split())
            shown = " ".join(f"{key}={value}" for key, value in session.sampling.items())
            say(shown or "all at their defaults")
        case "/stats":
            _show_stats(session, runner.run(engine.stats()))
        case _:
            raise InvalidRequestError(f"there is no command {name}; /help lists them")


def _show_stats(session: "ChatSession", engine: dict[str, float]) -> None:
    stats = session.stats
    if stats is None:
        say("No answer yet.")
        return
    say(f"prompt       {stats.prompt_tokens} tokens, {stats.cached_tokens} of them cached")
    say(f"output       {stats.output_tokens} tokens, {stats.tokens_per_second:.1f} a second")
    say(f"first token  after {stats.first_token * 1000:.0f} ms")
    say(f"KV pool      {engine['kv_usage']:.1%} in use")
