"""Layers that need more than keys and values of every token: which they are, and what is missing.

transformers names the kind of each layer (`layer_types`). What a layer keeps beside keys and values, or
chooses among them, shows in no short trial: so the generic adapter refuses models with such layers by
these names. Adapters of ours that keep states (LFM2) are chosen before anything is asked here.
"""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from yaie.models.rope import stated_context

_PAGED = frozenset(
    {"full_attention", "sliding_attention", "chunked_attention", "attention", "moe", "mlp"}
)
"""Kinds that a paged cache serves, or that keep nothing at all."""

_STATE = "which keep a state beside keys and values; a paged cache cannot hold it"

_TECHNIQUES = {
    "bailing_hybrid": "delta attention",
    "bamba": "Mamba-2",
    "falcon_h1": "Mamba-2",
    "falcon_mamba": "Mamba",
    "granitemoehybrid": "Mamba-2",
    "jamba": "Mamba",
    "kimi_linear": "Kimi Delta Attention",
    "mamba": "Mamba",
    "mamba2": "Mamba-2",
    "minimax": "lightning attention",
    "nemotron_h": "Mamba-2",
    "olmo_hybrid": "gated DeltaNet",
    "qwen3_5": "gated DeltaNet",
    "qwen3_next": "gated DeltaNet",
    "qwen4_exp": "gated DeltaNet",
    "recurrent_gemma": "RG-LRU recurrences",
    "zamba": "Mamba",
    "zamba2": "Mamba-2",
}
"""What layers of the kind `linear_attention` or `hybrid` are, by how `model_type` begins."""

_ALL_LAYERS = {"rwkv": "RWKV", "xlstm": "xLSTM"}
"""Families that do not name the kind of each layer."""


def unheld_layers(config: Any, wanted: int | None) -> str:
    """Why layers of a decoder cannot be served, in words; "" if nothing is known against them.

    config: a transformers PretrainedConfig of a decoder. wanted: the longest sequence, in tokens; its
    own if None.
    """
    kinds = _kinds(config)
    if not kinds:
        every = _ALL_LAYERS.get(config.model_type)
        return f"its layers are {every}, {_STATE}" if every else ""
    technique = _technique(config)
    for kind in dict.fromkeys(kinds):
        reason = _reason(kind, technique, config, wanted)
        if reason:
            numbers = [number for number, one in enumerate(kinds, 1) if one == kind]
            return f"{_numbered(numbers, len(kinds))} {reason}"
    return ""


def has_known_layers(config: Any) -> bool:
    """Whether it says of each layer what kind it is."""
    return bool(_kinds(config))


def _kinds(config: Any) -> list[str]:
    for field in ("layer_types", "layers_block_type"):
        kinds = getattr(config, field, None)
        if isinstance(kinds, list | tuple) and kinds:
            return [str(kind) for kind in kinds]
    return []


def _technique(config: Any) -> str:
    kind = str(config.model_type)
    names = [name for name in _TECHNIQUES if kind == name or kind.startswith(f"{name}_")]
    return _TECHNIQUES[max(names, key=len)] if names else ""


def _reason(kind: str, technique: str, config: Any, wanted: int | None) -> str:
    """Against layers of one kind."""
    if kind in _PAGED:
        return ""
    if kind in ("linear_attention", "mamba", "recurrent"):
        return f"are {technique or 'linear attention'}, {_STATE}"
    if kind.startswith("hybrid"):
        beside = technique or "a convolution or recurrence"
        return f"have {beside} beside attention, {_STATE}"
    if kind == "conv":
        return f"are short convolutions, {_STATE}"
    if "compressed" in kind:
        return (
            "attend to compressed keys, one for several tokens; a paged cache has a place for each "
            "token's own, and none for what is being compressed"
        )
    if kind not in ("indexed_attention", "minimax_m3_sparse"):
        return f"are of the kind {kind}, which a paged cache is not known to serve"
    indexer = "choose their keys by an indexer, whose own keys a paged cache does not hold"
    if kind == "indexed_attention":
        return indexer
    most = int(config.index_topk_blocks) * int(config.index_block_size)
    length = wanted or stated_context(config)
    if length is not None and length <= most:
        return ""
    return (
        f"{indexer}. Up to {most:,} tokens it chooses all of them, and the model is served: set "
        f"max_model_len (--max-model-len) to {most}"
    )


def _numbered(numbers: list[int], total: int) -> str:
    """Layers in words, counted from 1: "layers 1-3", "36 of its 48 layers (1-3, 5-7, 9-11, ...)"."""
    if len(numbers) == total:
        return "its layers"
    runs = list(_runs(numbers))
    if len(runs) == 1 and len(numbers) > 1:
        return f"layers {runs[0]}"
    shown = ", ".join(runs[:3]) + (", ..." if len(runs) > 3 else "")
    return f"{len(numbers)} of its {total} layers ({shown})"


def _runs(numbers: Iterable[int]) -> Iterable[str]:
    for _, run in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}"
