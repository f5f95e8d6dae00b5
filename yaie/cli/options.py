"""Flags that are generated from dataclasses, so that a new setting is a flag of every command.

`engine_options` adds one for each field of EngineConfig and hands the command the finished config;
`sampling_options` does the same for what one answer can be asked for.
"""

import inspect
from collections.abc import Callable, Container, Mapping
from dataclasses import fields, replace
from functools import wraps
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import typer

from yaie.cli.console import characters
from yaie.cluster.settings import NOT_HERE, ClusterSettings
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.core.idle import refuse_idle
from yaie.core.params import SamplingParams
from yaie.server.settings import ServerSettings

Command = TypeVar("Command", bound=Callable[..., Any])

# `seed` is missing: the engine's own does, when a command makes one engine for one user.
_SAMPLING_HELP = {
    "temperature": "0 always takes the most likely token. (default: 0)",
    "top_k": "Draw from the k most likely tokens; 0 is off.",
    "top_p": "Draw from the most likely tokens that reach this share.",
    "min_p": "Draw from tokens at least this likely, relative to the most likely one.",
    "presence_penalty": "Against tokens that were generated already.",
    "frequency_penalty": "Against tokens, by how often they were generated.",
    "repetition_penalty": "Against tokens of prompt and output; 1 is off.",
    "max_tokens": "Tokens to generate at most; as many as fit if not given.",
}


def engine_options(
    model_as: Literal["argument", "option"], last_model: Callable[[], str | None] | None = None
) -> Callable[[Command], Command]:
    """The command's parameter `config: EngineConfig` becomes a flag for each field and `--config`.

    model_as: "argument" takes the model as an argument or by `--model`, "option" by `--model` alone, for
    a command whose arguments are something else. last_model: which one to take if nothing names one; the
    command then learns by `is_remembered: bool` whether it was taken.
    """

    def decorate(command: Command) -> Command:
        @wraps(command)
        def with_config(**values: Any) -> Any:
            values = with_model(values)
            given = {item.name: values.pop(item.name) for item in fields(EngineConfig)}
            config = EngineConfig.load(given, file=values.pop("config_file"))
            if last_model is not None:
                is_named = given["model"] is not None or "model" in config.non_default()
                remembered = None if is_named else last_model()
                config = replace(config, model=remembered or config.model)
                values["is_remembered"] = remembered is not None
            refuse_idle(config, given)
            return command(config=config, **values)

        own = [p for p in _parameters(command) if p.name not in ("config", "is_remembered")]
        _set_signature(with_config, [*_model(model_as), *own, *_engine_flags()])
        return with_config  # type: ignore[return-value]

    return decorate


def sampling_options(command: Command) -> Command:
    """The command's parameter `sampling: dict[str, Any]` becomes a flag for each sampling parameter.

    It holds those that were given; they are checked here, before a model is loaded for nothing. Unlike
    the server, which does as OpenAI's, a person at a terminal gets the same answer twice.
    """

    @wraps(command)
    def with_sampling(**values: Any) -> Any:
        names = [*_SAMPLING_HELP, "stop"]
        given = {name: values.pop(name) for name in names}
        given["stop"] = [characters(text, "--stop") for text in given["stop"] or ()]
        sampling = {"temperature": 0.0} | {
            name: value for name, value in given.items() if value not in (None, [])
        }
        SamplingParams(**sampling)
        return command(sampling=sampling, **values)

    own = [p for p in _parameters(command) if p.name != "sampling"]
    _set_signature(with_sampling, [*own, *_sampling_flags()])
    return with_sampling  # type: ignore[return-value]


def server_options(command: Command) -> Command:
    """The command's parameter `settings: ServerSettings` becomes a flag for each field."""
    return _settings_options(command, "settings", ServerSettings)


def cluster_options(command: Command) -> Command:
    """The same with `cluster: ClusterSettings` as well, but for flags that do not hold for a cluster."""
    with_server = _settings_options(command, "settings", ServerSettings, without=NOT_HERE)
    return _settings_options(with_server, "cluster", ClusterSettings)


def _settings_options(
    command: Command, name: str, cls: type[Any], without: Container[str] = ()
) -> Command:
    items = [item for item in fields(cls) if item.name not in without]

    @wraps(command)
    def with_settings(**values: Any) -> Any:
        given = {item.name: values.pop(item.name) for item in items}
        given = {key: tuple(v) if isinstance(v, list) else v for key, v in given.items()}
        return command(**{name: cls.load(given)}, **values)

    hints = get_type_hints(cls)
    flags = [
        _flag(
            item.name, hints[item.name], item.metadata["help"], item.metadata["panel"], item.default
        )
        for item in items
    ]
    own = [p for p in _parameters(command) if p.name != name]
    _set_signature(with_settings, [*own, *flags])
    return with_settings  # type: ignore[return-value]


def refuse_flags(context: typer.Context, why: Mapping[str, str]) -> None:
    """Raise ConfigError for a flag that was given and that the command would not heed.

    why: by the name of the parameter, a sentence. The same setting in the environment or a file may
    stay: it is for other commands, too.
    """
    for name, reason in why.items():
        if context.params.get(name) is not None:
            flag = _flag_name(name, context.params[name])
            raise ConfigError(f"{flag} has no effect here: {reason}", param=name)


def _flag_name(name: str, value: Any = None) -> str:
    return f"--{'no-' if value is False else ''}{name.replace('_', '-')}"


MODEL_TOO = "model_too"
"""The parameter of `--model` where the model is an argument as well."""
SAME = "The same as MODEL."


def with_model(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a command's parameters, with the model under "model", however it was named.

    The command's context holds it so, too. Raises ConfigError if two are named.
    """
    if MODEL_TOO not in values:
        return values
    rest = {name: value for name, value in values.items() if name != MODEL_TOO}
    rest["model"] = one_model(values["model"], values[MODEL_TOO])
    if (context := values.get("context")) is not None:
        context.params["model"] = rest["model"]
    return rest


def one_model(argument: str | None, flag: str | None) -> str | None:
    """The model that an argument or `--model` names. Raises ConfigError if they name two."""
    if argument is not None and flag is not None and argument != flag:
        raise ConfigError(
            f"two models are named, {argument} and --model {flag}: leave one out", param="model"
        )
    return flag if argument is None else argument


def _model(model_as: str) -> list[inspect.Parameter]:
    help = next(item for item in fields(EngineConfig) if item.name == "model").metadata["help"]
    if model_as == "option":
        return [_flag("model", str, help, "Engine", "tutor")]
    argument = typer.Argument(help=help, show_default=False)
    option = typer.Option("--model", help=SAME, rich_help_panel="Engine")
    return [
        _parameter("model", str | None, argument),
        _parameter(MODEL_TOO, str | None, option),
    ]


def _engine_flags() -> list[inspect.Parameter]:
    hints = get_type_hints(EngineConfig)
    file = typer.Option("--config", help="A TOML file with settings.", rich_help_panel="Engine")
    return [
        _flag(item.name, hints[item.name], item.metadata["help"], "Engine", item.default)
        for item in fields(EngineConfig)
        if item.name != "model"
    ] + [_parameter("config_file", Path | None, file)]


def _sampling_flags() -> list[inspect.Parameter]:
    hints = get_type_hints(SamplingParams)
    stop = typer.Option("--stop", help="Ends the output; repeatable.", rich_help_panel="Sampling")
    return [
        _flag(name, hints[name], help, "Sampling", None) for name, help in _SAMPLING_HELP.items()
    ] + [_parameter("stop", list[str] | None, stop)]


def _flag(name: str, hint: Any, help: str, panel: str, default: Any) -> inspect.Parameter:
    """A flag that is None unless it is given: the default belongs to the dataclass."""
    flag = _flag_name(name)
    if hint in (bool, bool | None):
        flag = f"{flag}/--no-{flag[2:]}"
    if get_origin(hint) is tuple:
        hint = list[str]
    elif default is not None:
        help = f"{help} (default: {str(default).lower()})"
    if isinstance(hint, UnionType) and str in get_args(hint):
        hint = str  # which is text at first, whatever else it may be
    option = typer.Option(flag, help=help, rich_help_panel=panel)
    return _parameter(name, hint | None, option)


def _parameter(name: str, hint: Any, info: Any) -> inspect.Parameter:
    annotation = Annotated[hint, info]
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
    )


def _parameters(command: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(command).parameters.values())


def _set_signature(wrapper: Any, parameters: list[inspect.Parameter]) -> None:
    """What Typer reads: it looks at the signature, and at the annotations beside it."""
    keyword_only = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in parameters]
    wrapper.__signature__ = inspect.Signature(keyword_only)
    wrapper.__annotations__ = {p.name: p.annotation for p in keyword_only}
