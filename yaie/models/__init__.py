"""Models: from a hub id or a folder to something that the engine can run.

`ModelLoader` resolves (`hub`), reads (`weights`) and builds; a `ModelAdapter` is the model, hand-written
for the families people serve and `generic` for the rest. Importing this loads neither torch nor
transformers.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from yaie.models.adapter import ModelAdapter
    from yaie.models.loader import LoadedModel, ModelLoader
    from yaie.models.tokenizer import Tokenizer

__all__ = ["LoadedModel", "ModelAdapter", "ModelLoader", "Tokenizer"]

_HOME = {
    "LoadedModel": "yaie.models.loader",
    "ModelAdapter": "yaie.models.adapter",
    "ModelLoader": "yaie.models.loader",
    "Tokenizer": "yaie.models.tokenizer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'yaie.models' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
