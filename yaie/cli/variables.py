"""What a command says about variables of the environment that begin with YAIE_ and mean nothing."""

import os

from rich.text import Text

from yaie.cli.console import err
from yaie.cluster.settings import ClusterSettings
from yaie.core.config import EngineConfig
from yaie.core.variables import known_variables, refuse_misspelled, without_effect
from yaie.server.settings import ServerSettings


def unknown_variables() -> str:
    """A sentence on those that have no effect, or "".

    Raises ConfigError for one that is nearly a known one. Each command takes the variables of all the
    others for known: a shell may have them for `yaie serve` and run `yaie chat`.
    """
    known = known_variables(EngineConfig, ServerSettings, ClusterSettings)
    refuse_misspelled(os.environ, known)
    return without_effect(os.environ, known)


def warn_of_unknown_variables() -> None:
    """Show that sentence, once, on stderr. Raises ConfigError as `unknown_variables` does."""
    if said := unknown_variables():
        err.print(Text("Warning:", "yellow"), said, soft_wrap=True)
