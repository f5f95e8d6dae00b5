"""Every causal LM of transformers without an adapter of its own: their model, our paged attention.

transformers lets an attention function be registered by name (`AttentionInterface`). Ours hands query,
key and value to the engine's `attend`, so that keys and values live in the engine's pool; the rest of
the model runs as it is, on one flat row of tokens with explicit positions and no cache of its own.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, ClassVar

import torch
from torch import Tensor

from yaie.core.contracts import Attend, TransformerOps
from yaie.models.adapter import ModelAdapter, check_activation, check_weights
from yaie.models.hf_model import ForeignModel
from yaie.models.probe import register_attention, try_out
from yaie.models.route import PAGED
from yaie.models.schemes import Packing


class GenericAdapter(ModelAdapter):
    """A transformers model whose attention modules call `attend`.

    It differs from a hand-written adapter in speed only: `load_weights` compares it with the untouched
    model on a few tokens, and refuses a model that comes out differently. `kv_layers` and `vocab_size`
    are known from then on.
    """

    takes_packed = True
    built_with: ClassVar[str] = PAGED
    """The attention that transformers' model is made for; `try_out` sets it anew."""

    is_nested: ClassVar[bool] = False
    """See `ForeignModel`."""

    def __init__(
        self,
        config: Any,
        ops: TransformerOps,
        dtype: torch.dtype,
        device: torch.device,
        max_length: int,
        packing: Packing | None = None,
    ) -> None:
        super().__init__(config, ops, dtype, device, max_length, packing)
        self.kv_layers = []
        self.model: ForeignModel

    def load_weights(self, tensors: Iterable[tuple[str, Any]]) -> None:
        """Build the model around the weights, and try it.

        Raises ModelError if the weights do not fit, or if the model cannot run on a paged cache.
        """
        model = self.taken_apart(self._build(dict(tensors)))
        for parameter in model.parameters():
            self.num_parameters += parameter.numel()
            self.weight_bytes += parameter.nbytes
        with torch.inference_mode():
            tried = try_out(model, self.dtype, self.device, self.max_length, nested=self.is_nested)
        self.model, self.kv_layers, self.vocab_size = tried.model, tried.layers, tried.vocab_size
        self.windows = tried.model.route.windows

    def taken_apart(self, model: Any) -> Any:
        """The part of transformers' model that continues texts."""
        return model

    def foreign(self) -> tuple[Any, Any]:
        """The class of transformers that computes this model, and its configuration."""
        import transformers

        return getattr(transformers, self.config.architectures[0]), self.config

    def _build(self, weights: dict[str, Tensor]) -> Any:
        from transformers.activations import ACT2FN

        for field in ("hidden_act", "activation_function", "hidden_activation"):
            if isinstance(name := getattr(self.config, field, None), str):
                check_activation(name, ACT2FN)
        register_attention()
        model_class, config = self.foreign()
        if hasattr(config, "quantization_config"):  # or transformers asks for that tool
            config = deepcopy(config)
            del config.quantization_config
        parts = None
        if self.packing is not None:
            from yaie.models.generic_packed import PackedParts

            parts = PackedParts(self.packing, weights, model_class, config, self.dtype)
            model_class, weights = parts.model_class, parts.rest
        with _quiet_transformers():
            model, info = model_class.from_pretrained(
                None,
                config=config,
                state_dict=weights,
                dtype=self.dtype,
                attn_implementation=self.built_with,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # reported below, with what is missing
            )
        misshapen = [
            f"{name} has shape {list(given)} instead of {list(wanted)}"
            for name, given, wanted in info["mismatched_keys"]
        ]
        check_weights(info["missing_keys"], info["unexpected_keys"], misshapen)
        model = model.eval().requires_grad_(False).to(self.device)
        if parts is not None:
            parts.fill(model, self.device)
            self.num_parameters, self.weight_bytes = parts.num_parameters, parts.weight_bytes
        _settle_longrope(model, self.max_length)
        return model

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        return self.model.forward(token_ids, positions, attend)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.model.logits(hidden)


def _settle_longrope(model: torch.nn.Module, max_length: int) -> None:
    """Make longrope's choice of factors once, as `rope.max_context` explains.

    transformers chooses anew in each call by the longest sequence in it, which would let a sequence
    change its neighbours.
    """
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    for module in model.modules():
        if getattr(module, "rope_type", None) != "longrope":
            continue
        config: Any = module.config
        inv_freq, _ = ROPE_INIT_FUNCTIONS["longrope"](config, seq_len=max_length)
        module.original_inv_freq = inv_freq.to(module.inv_freq.device)


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """Without its progress bars and loading reports: what matters is raised as an error instead."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
