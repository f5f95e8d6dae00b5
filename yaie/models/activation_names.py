"""The names of activations that transformers checks a config.json with, without all that they import."""

import importlib
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

REAL = "transformers.activations"
CHECKS = "transformers.utils.type_validators"
USUAL = frozenset({"gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"})


def import_checks() -> None:
    """Import transformers' checks of configurations, which classes of configurations need.

    They look names up in a table of activations. Its module imports torch's compiler, its exporter to
    ONNX and its distributed tensors. That takes 1.5 of the 4 seconds in which a process of the engine
    starts, and 150 MB, and a hand-written adapter uses none of it. So the checks get a table that reads
    transformers' own only for a name that is not one of the usual. Does nothing where either module is
    imported already, or where this transformers has no such checks.
    """
    if REAL in sys.modules or CHECKS in sys.modules:
        return
    sys.modules[REAL] = _Placeholder(REAL)
    try:
        importlib.import_module(CHECKS)
    except ModuleNotFoundError as error:
        if error.name != CHECKS:
            raise
    finally:
        _put_back()


def _real() -> Any:
    _put_back()
    return importlib.import_module(REAL)


def _put_back() -> None:
    if isinstance(sys.modules.get(REAL), _Placeholder):
        del sys.modules[REAL]


class _Placeholder(ModuleType):
    """What `from transformers.activations import NAME` finds meanwhile, on another thread too."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python asks whether it is a package
            raise AttributeError(name)
        return _TABLE if name == "ACT2FN" else getattr(_real(), name)


class _Table(Mapping[str, Any]):
    def __contains__(self, name: object) -> bool:
        return name in USUAL or name in _real().ACT2FN

    def __getitem__(self, name: str) -> Any:
        return _real().ACT2FN[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_real().ACT2FN)

    def __len__(self) -> int:
        return len(USUAL)


_TABLE = _Table()
