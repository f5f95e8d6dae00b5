"""Who makes token ids of a text: a tokenizer's part in Rust, or the `encode` that transformers has.

Used by `Tokenizer`.
"""

import threading
from contextlib import nullcontext
from typing import Any


def in_rust(tokenizer: Any) -> Any:
    """The tokenizer in Rust, if nothing is done to a text before it comes there. It is set to neither
    cut nor pad: changing that is what it refuses while another thread uses it."""
    if not getattr(tokenizer, "is_fast", False):
        return None
    from transformers import PreTrainedTokenizerFast as Fast

    kind = type(tokenizer)
    if kind._encode_plus is not Fast._encode_plus or kind.encode is not Fast.encode:
        return None
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    backend.encode_special_tokens = tokenizer.split_special_tokens
    return backend


class SlowEncoder:
    """A tokenizer that does something to a text before Rust, or has no such part. May be used on several
    threads."""

    def __init__(self, tokenizer: Any) -> None:
        """tokenizer: of transformers."""
        self._tokenizer = tokenizer
        # One that is written in Python is not known to bear two callers.
        self._lock = None if getattr(tokenizer, "is_fast", False) else threading.Lock()

    def __call__(self, text: str, add_special_tokens: bool) -> list[int]:
        """The ids of a text, with or without what the tokenizer puts around it."""
        with self._lock or nullcontext():
            ids: list[int] = self._tokenizer.encode(
                text, add_special_tokens=add_special_tokens, verbose=False
            )
        return ids
