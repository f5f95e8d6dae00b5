"""Variables of the environment that begin with YAIE_: which mean something, and what is said of others.

A name close to a known one is taken for a misspelling, and is an error: otherwise someone would believe
in a setting that is not in force. Any other name only causes a warning, since it need not be a mistake.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

from yaie.core.errors import ConfigError
from yaie.core.settings import ENV_PREFIX

MOST_EDITS = 2
"""Letters inserted, left out or replaced, at most, in what still counts as a misspelling."""

NO_SETTINGS = {
    "CONFIG": "a file of settings",
    "CACHE": "where compiled kernels are kept",
    "RANK_SECRET": "what ranks that a launcher has started know each other by",
    "CHILD": "marks a command that another one runs, which speaks for it",
    "GRADING": "marks what a grader has started",
    "BOOK_PROGRESS": "whose progress the book shows, from `make docs-serve` to what draws it",
    "BOOK_URL": "where the book will be published, for previews of links to it",
    "CLIENTS": "where the tests find the environments of clients",
    "JUDGES": "where they find programs that judge the server",
    "JUDGED": "the servers that they hand to these",
    "EXAMPLES": "how many examples a property test draws",
}
"""Without the prefix; a setting's variable is its field's name."""

# Kubernetes tells each container of each service of its namespace, so a service called "yaie" or
# "yaie-model" puts these there: no one has written them, and no one could take them away.
_INJECTED = re.compile(
    r"(.+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
_INJECTED_URL = re.compile(r"(.+_)?PORT")


def known_variables(*settings: type[Any]) -> set[str]:
    """All that mean something, given the dataclasses of settings that are read."""
    names = {item.name.upper() for cls in settings for item in fields(cls) if item.metadata["env"]}
    return {ENV_PREFIX + name for name in names | NO_SETTINGS.keys()}


def refuse_misspelled(environ: Mapping[str, str], known: Collection[str]) -> None:
    """Raise ConfigError, naming both, for a variable that is nearly a known one."""
    for name in _unknown(environ, known):
        meant = min(known, key=lambda one: (edits(name.upper(), one), one))
        if edits(name.upper(), meant) <= MOST_EDITS:
            raise ConfigError(
                f"the environment has {name}, which is no setting; did you mean {meant}? Rename it, or "
                f"take it out (unset {name})",
                param=name,
            )


def without_effect(environ: Mapping[str, str], known: Collection[str]) -> str:
    """A sentence on the variables that mean nothing here, or "" if there are none."""
    names = _unknown(environ, known)
    if not names:
        return ""
    verb = "is no setting and has" if len(names) == 1 else "are no settings and have"
    return f"{', '.join(names)} {verb} no effect (yaie serve --help lists the settings)"


def _unknown(environ: Mapping[str, str], known: Collection[str]) -> list[str]:
    return sorted(
        name
        for name, value in environ.items()
        if name.startswith(ENV_PREFIX)
        and name not in known
        and not _is_injected(name.removeprefix(ENV_PREFIX), value)
    )


def _is_injected(name: str, value: str) -> bool:
    return bool(_INJECTED.fullmatch(name)) or (
        "://" in value and bool(_INJECTED_URL.fullmatch(name))
    )


def edits(one: str, other: str) -> int:
    """The edit distance (Levenshtein) of two words."""
    before = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        now = [row]
        for column, opposite in enumerate(other, 1):
            replaced = before[column - 1] + (letter != opposite)
            now.append(min(replaced, before[column] + 1, now[-1] + 1))
        before = now
    return before[-1]
