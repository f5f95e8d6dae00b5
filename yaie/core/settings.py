"""How the dataclasses of settings are made: `EngineConfig`, and the server's in `yaie.server.settings`.

A setting is a field with a help text. Its flag and its variable in the environment follow from its name,
and its value is checked against its type.
"""

import types
from collections.abc import Mapping
from dataclasses import field, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from yaie.core.errors import ConfigError

ENV_PREFIX = "YAIE_"


def setting(
    default: Any, help: str, *, panel: str = "Engine", env: bool = True, repr: bool = True
) -> Any:
    """A field of such a dataclass.

    panel: the heading of its flag in `--help`. env: whether the environment may give it. repr: False
    for what must not be shown.
    """
    metadata = {"help": help, "panel": panel, "env": env}
    return field(default=default, repr=repr, metadata=metadata)


def check_types(settings: Any) -> None:
    """Raise ConfigError, naming the setting, unless every value is of its field's type."""
    hints = get_type_hints(type(settings))
    for item in fields(settings):
        _check_type(item.name, getattr(settings, item.name), hints[item.name])


def require(condition: bool, name: str, message: str, value: Any) -> None:
    """Raise ConfigError about the setting `name` if the condition does not hold."""
    if not condition:
        raise ConfigError(f"{name} {message}, got {value!r}", param=name)


def _options(hint: Any) -> tuple[Any, ...]:
    """The member types of a hint: (int, NoneType) of `int | None`, (hint,) of anything else."""
    return get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def _check_type(name: str, value: Any, hint: Any) -> None:
    for option in _options(hint):
        if get_origin(option) is Literal:
            choices = get_args(option)
            require(value in choices, name, f"must be one of {', '.join(choices)}", value)
            return
        if get_origin(option) is tuple:
            each = get_args(option)[0]
            if type(value) is tuple and all(type(member) is each for member in value):
                return
            raise ConfigError(f"{name} must be a tuple of {each.__name__}", param=name)
        if option is float and type(value) is int:
            return
        if type(value) is option:
            return
    wanted = " or ".join(
        option.__name__ for option in _options(hint) if option is not types.NoneType
    )
    raise ConfigError(f"{name} must be of type {wanted}, got {value!r}", param=name)


def from_environment(environ: Mapping[str, str], cls: type[Any]) -> dict[str, Any]:
    """The settings of `cls` that the environment gives. Raises ConfigError, naming the variable."""
    hints = get_type_hints(cls)
    return {
        item.name: _parse(item.name, environ[key], hints[item.name])
        for item in fields(cls)
        if item.metadata.get("env", True) and (key := ENV_PREFIX + item.name.upper()) in environ
    }


def _parse(name: str, text: str, hint: Any) -> Any:
    if str in _options(hint):
        return text
    for option in _options(hint):
        try:
            if option is bool:
                return {"1": True, "true": True, "0": False, "false": False}[text.lower()]
            if option in (int, float):
                return option(text)
            if get_origin(option) is tuple:
                return tuple(part.strip() for part in text.split(",") if part.strip())
        except (ValueError, KeyError):
            variable = ENV_PREFIX + name.upper()
            raise ConfigError(
                f"{variable} must be of type {option.__name__}, got {text!r}", param=name
            ) from None
    return text
