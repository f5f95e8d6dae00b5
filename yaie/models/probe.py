"""Trying a transformers model on our attention before it serves anybody.

What a model needs beyond keys and values (recurrent state, biases on scores, positions that it counts
itself) shows in no flag that could be relied on. So each model is run on a few tokens, once as
transformers runs it and once as the engine will, and refused by name if the two differ.
"""

import sys
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from yaie.core.batch import KVLayerSpec
from yaie.core.errors import ModelError
from yaie.models.hf_model import ForeignModel
from yaie.models.naive_kv import ContiguousKV
from yaie.models.rope import stated_context
from yaie.models.route import MASK_CHECKED, PAGED, paged_attention
from yaie.models.supported import own_attention, unsupported

NUM_TOKENS = 10


@dataclass(frozen=True, slots=True)
class Tried:
    """A model that came out the same both ways. layers: in the order in which they attend."""

    model: ForeignModel
    layers: list[KVLayerSpec]
    vocab_size: int


def register_attention() -> None:
    """Make our attention known to transformers, under both names. Twice is harmless."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(PAGED, paged_attention)
    AttentionInterface.register(MASK_CHECKED, paged_attention)
    AttentionMaskInterface.register(MASK_CHECKED, describe_mask)


def try_out(
    model: Any, dtype: torch.dtype, device: torch.device, max_length: int, *, nested: bool = False
) -> Tried:
    """Find the layers of a transformers model, and compare it with itself under their own attention.

    max_length: no sequence will be longer. nested: see `ForeignModel`. The model is taken apart. Raises
    ModelError naming the architecture if it cannot be served.
    """
    name = type(model).__name__
    vocab_size = model.config.get_text_config(decoder=True).vocab_size
    token_ids = torch.arange(NUM_TOKENS, device=device) * 7919 % vocab_size
    try:
        expected = _run_eagerly(model, token_ids)
    except Exception as error:  # their code, on this config
        raise unsupported(name, f"transformers itself fails on it ({_short(error)})") from error
    try:
        tried = _find_layers(ForeignModel(model, nested=nested), name, token_ids, max_length)
        model.config._attn_implementation = PAGED
        _compare(tried.model, name, token_ids, expected, 1e-3 if dtype == torch.float32 else 0.1)
    except ModelError:
        raise
    except Exception as error:  # their code, in a use that its authors may not have thought of
        raise unsupported(name, f"it fails on a paged cache ({_short(error)})") from error
    return tried


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"


def _run_eagerly(model: Any, token_ids: Tensor) -> Tensor:
    """Logits [n, vocab] as transformers computes them in plain PyTorch."""
    model.config._attn_implementation = "eager"
    logits: Tensor = model(input_ids=token_ids[None], use_cache=False).logits[0]
    return logits.float()


def _find_layers(model: ForeignModel, name: str, token_ids: Tensor, max_length: int) -> Tried:
    """Run once and note, in the order of the calls, which modules attend, how wide and how far."""
    layers: list[KVLayerSpec] = []
    route = model.route

    def observe(module: Any, key: Tensor, mask: Tensor | None, options: dict[str, Any]) -> None:
        if module in route.layers:
            raise unsupported(name, "a layer attends twice, and has one place for keys and values")
        if False in (options.get("is_causal"), getattr(module, "is_causal", None)):
            raise unsupported(
                name,
                "its attention is not causal: a prompt's tokens see those behind them, which a prompt "
                "in chunks does not have yet",
            )
        route.layers[module] = len(layers)
        route.windows.append(_window(mask, options))
        layers.append(KVLayerSpec(key.shape[1], key.shape[3]))

    model.config._attn_implementation = MASK_CHECKED
    route.observer = observe
    served = _SERVED.set(max_length)
    try:
        attend = ContiguousKV().attend([("a", NUM_TOKENS)])
        positions = torch.arange(NUM_TOKENS, device=token_ids.device)
        vocab_size = model.logits(model.forward(token_ids, positions, attend)).shape[-1]
    except _UnknownMaskError as error:
        raise unsupported(name, f"{error}{_chunks(model.config, max_length)}") from None
    finally:
        route.observer = None
        _SERVED.reset(served)
    if not layers:
        raise unsupported(name, own_attention(sys.modules[type(model.body).__module__]))
    return Tried(model, layers, vocab_size)


def _compare(
    model: ForeignModel, name: str, token_ids: Tensor, expected: Tensor, tolerance: float
) -> None:
    """One sequence in two chunks, the second beside the start of another sequence, in one flat batch."""
    if not torch.isfinite(expected).all():
        return  # These weights overflow on these tokens; nothing can be learned from that.
    first, other = 6, 3
    kv = ContiguousKV()
    positions = torch.arange(NUM_TOKENS, device=token_ids.device)
    got = model.forward(token_ids[:first], positions[:first], kv.attend([("a", first)]))
    mixed = torch.cat([positions[:other], positions[first:]])
    attend = kv.attend([("b", other), ("a", NUM_TOKENS - first)])
    got_mixed = model.forward(token_ids[mixed], mixed, attend)
    for hidden, rows in (
        (got, positions[:first]),
        (got_mixed[:other], positions[:other]),
        (got_mixed[other:], positions[first:]),
    ):
        wanted = expected[rows]
        errors = (model.logits(hidden) - wanted).norm(dim=1) / wanted.norm(dim=1)
        # The median, since in bfloat16 a router may send single tokens to another expert.
        if not errors.median() <= tolerance:
            raise unsupported(
                name,
                "run in chunks beside another sequence it computes something else than in one piece, so "
                "it depends on more than positions, keys and values",
            )


def _chunks(config: Any, max_length: int) -> str:
    """What to do about a mask of chunks, in words: within the first of them it is plainly causal."""
    chunk = getattr(config.get_text_config(decoder=True), "attention_chunk_size", None)
    if not isinstance(chunk, int) or chunk >= max_length:
        return ""
    return (
        f" beyond the first {chunk:,} tokens (attention_chunk_size); up to there it is served: set "
        f"max_model_len (--max-model-len) to {chunk}"
    )


_SERVED: ContextVar[int] = ContextVar("served")
"""The longest sequence of the model that is being tried, for a function that transformers calls."""


class _UnknownMaskError(Exception):
    """A mask that the engine's attention cannot apply."""


UNKNOWN = -1
"""Such a mask, where the window would stand: a model may make one that no layer of it uses."""


def describe_mask(
    *,
    mask_function: Callable[..., Tensor],
    config: Any,
    q_length: int,
    kv_length: int,
    device: Any = "cpu",
    **_: Any,
) -> Tensor:
    """What transformers calls, while a model is tried, where it would build a mask.

    Returns a constant [1, 1, q_length, kv_length], which models hand on to their layers: the window, 0
    if all earlier keys are visible, or UNKNOWN.
    """
    length = _SERVED.get(stated_context(config) or 1 << 16)
    window = _window_of(mask_function, length, device)
    return torch.full((1, 1, q_length, kv_length), float(window or 0), device=device)


def _window_of(mask_function: Callable[..., Tensor], length: int, device: Any) -> int | None:
    """The window that a mask function of indices amounts to; None if it is plainly causal, and UNKNOWN
    if it is neither.

    Three queries over `length` keys tell it: chunked or bidirectional attention is no window for all.
    """
    zero = torch.zeros((), dtype=torch.long, device=device)
    keys = torch.arange(length, device=device)
    windows = set()
    for query in (length - 1, length // 2, length // 3):
        visible = mask_function(zero, zero, keys[query], keys).expand(length).nonzero().flatten()
        count = len(visible)
        if count == 0 or visible[-1] != query or visible[0] != query - count + 1:
            return UNKNOWN
        windows.add(count if count <= query else None)
    if len(windows - {None}) > 1:
        return UNKNOWN
    return next(iter(windows - {None}), None)


def _window(mask: Tensor | None, options: dict[str, Any]) -> int | None:
    """A layer's window: what its mask hides, or what it asks for if it got no mask of ours."""
    if mask is not None and mask.dim() == 4 and bool((mask == mask.flatten()[0]).all()):
        told = int(mask.flatten()[0].item())
        if told == UNKNOWN:
            raise _UnknownMaskError("its mask is neither causal nor one sliding window")
        return told or None
    window: int | None = options.get("sliding_window")
    return window
