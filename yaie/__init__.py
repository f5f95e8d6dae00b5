"""YAIE: the engine around the parts that a learner writes.

The public names load on first use, so that a part may import `yaie.core` without loading the engine
that will load the part, and so that `yaie --help` answers without importing torch.
"""

from importlib import import_module

TYPE_CHECKING = (
    False  # typing's would take most of the time until Ctrl-C is heeded (`system.interrupt`)
)
if TYPE_CHECKING:
    from typing import Any

    from yaie.core.config import EngineConfig
    from yaie.core.params import SamplingParams
    from yaie.engine.llm_engine import LLMEngine

__version__ = "0.1.0"
__all__ = ["EngineConfig", "LLMEngine", "SamplingParams", "__version__"]

_HOME = {
    "EngineConfig": "yaie.core.config",
    "LLMEngine": "yaie.engine.llm_engine",
    "SamplingParams": "yaie.core.params",
}


def __getattr__(name: str) -> "Any":
    if name not in _HOME:
        raise AttributeError(f"module 'yaie' has no attribute {name!r}")
    if name == "LLMEngine":  # with which comes torch, unless the caller has it already
        import_module("yaie.system.thread_niceness").spin_less()
    return getattr(import_module(_HOME[name]), name)
