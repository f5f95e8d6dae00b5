"""`yaie chat`: a conversation in the terminal.

The engine runs on its own thread, so Ctrl-C can stop an answer between two steps and leave the
engine whole. Input that is piped in is answered line by line.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from yaie.cli.chat_wrap import WordWrap
from yaie.cli.console import (
    characters,
    note,
    say,
    show_backend,
    show_error,
    show_parts,
    state_dir,
    warnings_held,
)
from yaie.cli.options import engine_options, sampling_options
from yaie.core.compat import Runner
from yaie.core.config import EMBEDDED, EngineConfig
from yaie.core.errors import EngineDeadError, InvalidRequestError, YaieError
from yaie.system.files import cannot_write, write_whole
from yaie.system.interrupt import OwnInterrupts, is_interrupted
from yaie.system.streams import control_keys_unseen
from yaie.system.terminal import printable

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
        model = (state_dir() / "last_model").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):  # there is none, or it cannot be read
        return None
    # Earlier versions kept a folder as it was typed, which means another one from elsewhere.
    if model.startswith(".") and not Path(model).exists():
        note(
            f"The model of the last chat was remembered as {model}, and from here there is no such "
            "folder. You talk to the embedded tutor; name yours once more: yaie chat FOLDER"
        )
        return None
    return model or None


def _remember(model: str) -> None:
    """A folder or a file by its full path: the next chat may begin in another folder."""
    path = Path(model).expanduser()
    if model not in EMBEDDED and path.exists():
        model = os.path.abspath(path)
    try:
        write_whole(state_dir() / "last_model", model)
    except OSError as error:
        why = cannot_write(error.filename, error)
        note(f"The model and what you type are not remembered: {why}.")


def _whence(model: str) -> str:
    """Where the model's name comes from when the command names none."""
    return (
        f"The name {model} is remembered from the last chat ({state_dir() / 'last_model'}). To talk to "
        "another model and remember that, name it: yaie chat MODEL. The embedded one: yaie chat tutor."
    )


@engine_options(model_as="argument", last_model=_last_model)
@sampling_options
def chat(
    config: EngineConfig,
    is_remembered: bool,
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
        note(f"Loading {config.model} ...")
    with Runner() as runner:
        try:
            runner.run(engine.start())
        except YaieError as error:
            if not is_remembered:
                raise
            raise YaieError(f"{error.message} {_whence(config.model)}") from None
        _remember(config.model)
        show_backend(engine.info)
        show_parts(engine.info.parts, brief=True)
        if sys.stdin.isatty():
            note("/help lists the commands, Ctrl-D leaves.")
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
            note("\n(stopped)")


def _answer(line: str, runner: Runner, session: "ChatSession") -> None:
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    wrap = WordWrap(_show, width)
    with warnings_held():
        try:
            with control_keys_unseen():
                cut = runner.run(session.ask(line, lambda text: wrap.feed(printable(text))))
        finally:
            wrap.end()
        say("")
    if cut:
        note(f"(cut off by {cut})")


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
            note("Forgotten.")
        case "/system":
            session.system = rest or session.system
            say(f"system: {session.system or '(none)'}")
        case "/params":
            session.set_params(rest.split())
            shown = " ".join(f"{key}={value}" for key, value in session.sampling.items())
            say(shown or "all at their defaults")
        case "/stats":
            drafts = engine.info.config.speculate != "off"
            _show_stats(session, runner.run(engine.stats()), drafts=drafts)
        case _:
            raise InvalidRequestError(f"there is no command {name}; /help lists them")


def _of_groups(engine: dict[str, float]) -> str:
    """How full the pool is by group, of a model of which some layers have a window."""
    if "windowed_kv_usage" not in engine:
        return ""
    full, windowed = engine["full_kv_usage"], engine["windowed_kv_usage"]
    return f": {full:.1%} where layers see all of a text, {windowed:.1%} where they have a window"


def _show_stats(session: "ChatSession", engine: dict[str, float], *, drafts: bool = False) -> None:
    """drafts: whether the engine guesses at tokens."""
    stats = session.stats
    if stats is None:
        say("No answer yet.")
        return
    say(f"prompt       {stats.prompt_tokens} tokens, {stats.cached_tokens} of them cached")
    say(f"output       {stats.output_tokens} tokens, {stats.tokens_per_second:.1f} a second")
    say(f"first token  after {stats.first_token * 1000:.0f} ms")
    if drafts:
        accepted = f"{engine['accepted_draft_tokens']:.0f} of them accepted"
        say(f"drafts       {engine['draft_tokens']:.0f} tokens since the start, {accepted}")
    say(f"KV pool      {engine['kv_usage']:.1%} in use{_of_groups(engine)}")
    threads, wanted = engine.get("threads", 0), engine.get("threads_wanted", 0)
    if threads < wanted:
        say(f"threads      {threads:.0f} of {wanted:.0f}: other programs keep the cores busy")
