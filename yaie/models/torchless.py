"""Tokenizers in a process that has no model, and no use for torch."""

import os
import sys
from pathlib import Path

from yaie.models.tokenizer import Tokenizer

QUIET = "TRANSFORMERS_NO_ADVISORY_WARNINGS"


def load_tokenizer(folder: Path, model_type: str = "") -> Tokenizer:
    """`Tokenizer.load`, without torch if neither it nor transformers is imported yet.

    Transformers reads tokenizers without torch, but imports it wherever it is installed: that is 270 MB,
    and most of the time that a tokenizer takes to load. For the life of this process transformers then
    knows of no models, so this is not for one that may load a model later.
    """
    if "torch" not in sys.modules and "transformers" not in sys.modules:
        _import_transformers_alone()
    return Tokenizer.load(folder, model_type)


def _import_transformers_alone() -> None:
    """As if torch were not installed, which transformers looks up once, and would warn of."""
    before = os.environ.get(QUIET)
    os.environ[QUIET] = "1"
    sys.modules["torch"] = None  # type: ignore[assignment]  # Python's way to say that it is not there
    try:
        from transformers import AutoTokenizer  # noqa: F401
    finally:
        del sys.modules["torch"]
        if before is None:
            del os.environ[QUIET]
        else:
            os.environ[QUIET] = before
