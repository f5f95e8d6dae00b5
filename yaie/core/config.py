"""Every setting of the engine, in one dataclass, read once.

A value comes from the first of: a flag or keyword argument, the environment (`YAIE_BLOCK_SIZE=32`),
a TOML file (`block_size = 32`; its path from `--config` or `YAIE_CONFIG`), the default here.
"""

import os
import types
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from yaie.core.compat import Self, tomllib
from yaie.core.errors import ConfigError

ENV_PREFIX = "YAIE_"
MOST_GIB = 1 << 20


def _setting(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Immutable; checked on construction. `ConfigError` names the setting and the fix."""

    model: str = _setting("tutor", "Hub id, folder, or 'tutor' for the embedded model.")
    revision: str | None = _setting(None, "Branch, tag or commit of a model on the hub.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = _setting(
        "auto", "Of weights and KV pool; auto is float32 on a CPU, the checkpoint's on a GPU."
    )
    device: Literal["auto", "cpu", "cuda"] = _setting("auto", "Where the model runs.")
    backend: Literal["auto", "torch", "triton", "cuda"] = _setting(
        "auto", "What the kernels are written in; auto is torch on a CPU, triton on a GPU."
    )
    block_size: int = _setting(16, "Token slots in a block.")
    num_blocks: int | None = _setting(
        None, "Blocks in the KV pool; sized from memory if not given."
    )
    kv_memory_share: float | None = _setting(
        None, "Share of free memory for the KV pool if num_blocks is not given (CPU 0.3, GPU 0.9)."
    )
    max_model_len: int | None = _setting(
        None, "Longest sequence; the model's own limit if not given."
    )
    max_num_seqs: int = _setting(256, "Requests that run at once, at most.")
    token_budget: int = _setting(2048, "Tokens that one step computes, at most.")
    max_waiting: int = _setting(2048, "Requests that may queue; more are refused with 503.")
    policy: Literal["fcfs", "priority", "lpm"] = _setting(
        "fcfs", "Order of admission: first come, by priority, or longest cached prefix."
    )
    batching: Literal["continuous", "static"] = _setting(
        "continuous", "static waits for a whole batch to end before the next (for comparison)."
    )
    prefix_caching: bool = _setting(True, "Reuse the KV blocks of shared prefixes.")
    chunked_prefill: bool = _setting(True, "Split prompts over steps when the budget is short.")
    preemption: Literal["recompute", "swap"] = _setting(
        "recompute", "How a request gives up its blocks; swap recomputes when swap_space is full."
    )
    swap_space: float = _setting(0.0, "GiB of host memory for blocks of preempted requests.")
    watermark: float = _setting(0.01, "Share of blocks kept free when a new request is admitted.")
    seed: int = _setting(0, "Of the draws of requests that bring no seed of their own.")
    threads: int | None = _setting(None, "CPU threads; all physical cores if not given.")
    mine: str = _setting(
        "auto",
        "Whose parts run: auto (yours once all their tasks have passed), all, none, "
        "or a list: sampler,radix_tree.",
    )

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for item in fields(self):
            _check_type(item.name, getattr(self, item.name), hints[item.name])
        self._check_ranges()

    def _check_ranges(self) -> None:
        for name in ("block_size", "num_blocks", "max_model_len", "max_num_seqs", "token_budget",
                     "max_waiting", "threads"):  # fmt: skip
            value = getattr(self, name)
            _require(value is None or value >= 1, name, "must be at least 1", value)
        share = self.kv_memory_share
        _require(share is None or 0 < share <= 1, "kv_memory_share", "must be in (0, 1]", share)
        _require(0 <= self.watermark < 1, "watermark", "must be in [0, 1)", self.watermark)
        swap = self.swap_space
        _require(0 <= swap <= MOST_GIB, "swap_space", f"must be between 0 and {MOST_GIB:,}", swap)
        _require(self.model != "", "model", "must not be empty", self.model)
        if self.preemption == "swap" and self.swap_space == 0:
            raise ConfigError(
                "preemption 'swap' needs swap_space above 0 (in GiB)", param="swap_space"
            )

    @classmethod
    def load(
        cls,
        given: Mapping[str, Any] | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        file: str | Path | None = None,
    ) -> Self:
        """Merge the sources. `given` holds flags or keyword arguments; None values count as absent."""
        environ = os.environ if environ is None else environ
        file = file or environ.get(ENV_PREFIX + "CONFIG")
        values = _from_file(Path(file), cls) if file else {}
        values |= _from_environment(environ, cls)
        values |= {name: value for name, value in (given or {}).items() if value is not None}
        unknown = values.keys() - {item.name for item in fields(cls)}
        if unknown:
            raise ConfigError(
                f"no setting is called {sorted(unknown)[0]!r}", param=sorted(unknown)[0]
            )
        return cls(**values)

    def non_default(self) -> dict[str, Any]:
        """The settings that differ from their defaults."""
        return {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if getattr(self, item.name) != item.default
        }


def _require(condition: bool, name: str, message: str, value: Any) -> None:
    if not condition:
        raise ConfigError(f"{name} {message}, got {value!r}", param=name)


def _options(hint: Any) -> tuple[Any, ...]:
    """The member types of a hint: (int, NoneType) of `int | None`, (hint,) of anything else."""
    return get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def _check_type(name: str, value: Any, hint: Any) -> None:
    for option in _options(hint):
        if get_origin(option) is Literal:
            choices = get_args(option)
            _require(value in choices, name, f"must be one of {', '.join(choices)}", value)
            return
        if option is float and type(value) is int:
            return
        if type(value) is option:
            return
    wanted = " or ".join(
        option.__name__ for option in _options(hint) if option is not types.NoneType
    )
    raise ConfigError(f"{name} must be of type {wanted}, got {value!r}", param=name)


def _from_file(path: Path, cls: type[EngineConfig]) -> dict[str, Any]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration file {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None
    known = {item.name for item in fields(cls)}
    for name in values:
        if name not in known:
            raise ConfigError(f"{path}: no setting is called {name!r}", param=name)
    return values


def _from_environment(environ: Mapping[str, str], cls: type[EngineConfig]) -> dict[str, Any]:
    hints = get_type_hints(cls)
    return {
        item.name: _parse(item.name, environ[key], hints[item.name])
        for item in fields(cls)
        if (key := ENV_PREFIX + item.name.upper()) in environ
    }


def _parse(name: str, text: str, hint: Any) -> Any:
    for option in _options(hint):
        try:
            if option is bool:
                return {"1": True, "true": True, "0": False, "false": False}[text.lower()]
            if option in (int, float):
                return option(text)
        except (ValueError, KeyError):
            variable = ENV_PREFIX + name.upper()
            raise ConfigError(
                f"{variable} must be of type {option.__name__}, got {text!r}", param=name
            ) from None
    return text
