"""`yaie serve` as a process of its own, for the commands that measure it from outside."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields

from yaie.core.config import EngineConfig
from yaie.core.errors import YaieError
from yaie.core.idle import idle_settings
from yaie.core.settings import ENV_PREFIX
from yaie.server.settings import ServerSettings
from yaie.system.interrupt import CHILD

STOP_SECONDS = 60
Server = subprocess.Popen[str]


@contextlib.contextmanager
def serving(
    config: EngineConfig, *options: str, env: dict[str, str] | None = None
) -> Iterator[tuple[str, Server]]:
    """A server with these settings, once it answers: (address, process). It logs to this terminal.

    options: further flags of `yaie serve`. env: instead of `environment()`. Raises YaieError if it ends
    before it answers.
    """
    command = [sys.executable, "-m", "yaie", "serve", "--port=0", *flags(config), *options]
    env = (environment() if env is None else env) | {CHILD: "1"}
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if found := re.search(r"Serving at (\S+)/v1", line):
                yield found[1], process
                break
        else:
            raise YaieError(f"yaie serve ended with {process.wait()} before it answered")
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def flags(config: EngineConfig) -> list[str]:
    """The arguments of a command that give it this configuration, where no variable gives another.

    Settings without effect, which may come from a file, are left out: as flags they would be refused.
    """
    given, idle = [config.model], idle_settings(config)
    for name, value in config.non_default().items():
        flag = name.replace("_", "-")
        if name in idle:
            continue
        if isinstance(value, bool):
            given.append(f"--{flag}" if value else f"--no-{flag}")
        elif name != "model":
            given.append(f"--{flag}={value}")
    return given


def engine_process_flags(asked: bool | None) -> list[str]:
    """Whether the engine runs in a process of its own; None leaves it to the server."""
    return [] if asked is None else [f"--{'' if asked else 'no-'}engine-process"]


def environment() -> dict[str, str]:
    """This process's environment without settings: those are in the flags. A key would lock us out."""
    names = [item.name for cls in (EngineConfig, ServerSettings) for item in fields(cls)]
    settings = {ENV_PREFIX + name.upper() for name in ["config", *names]}
    return {name: value for name, value in os.environ.items() if name not in settings}
