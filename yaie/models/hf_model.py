"""`ForeignModel`: a model of transformers whose attention modules call `attend`."""

from typing import Any

import torch
from torch import Tensor

from yaie.core.contracts import Attend
from yaie.models.route import Route, Temperature


class ForeignModel:
    """Their decoder and their head, apart, so that only wanted rows meet the head.

    What a family does around the head (scaling, softcap) is its own code: the whole model runs with a
    stand-in for its decoder.

    route: from the model's attention modules to `attend`.
    """

    def __init__(self, model: Any, *, nested: bool = False) -> None:
        """Takes the model apart: it cannot be run as a whole any more.

        nested: whether the decoder is a part of a part of it, of which nothing else is there.
        """
        self.route = Route()
        for module in model.modules():
            module.yaie_route = self.route
            if getattr(module, "attn_temperature_tuning", False) and not module.use_rope:
                self.route.temperatures[module] = Temperature(
                    float(module.floor_scale), float(module.attn_scale)
                )
                module.attn_temperature_tuning = False
        self.body = decoder_of(model)
        name = next(name for name, module in model.named_modules() if module is self.body)
        if nested:
            name = name.partition(".")[0]
        parent, _, child = name.rpartition(".")
        setattr(model.get_submodule(parent), child, _StandIn())
        self._head = model

    @property
    def config(self) -> Any:
        return self._head.config

    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """See `ModelAdapter.forward`."""
        with self.route.through(attend, positions):
            output = self.body(
                input_ids=token_ids[None], position_ids=positions[None], use_cache=False
            )
        hidden: Tensor = output.last_hidden_state[0]
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """See `ModelAdapter.logits`."""
        logits: Tensor = self._head(inputs_embeds=hidden[None], use_cache=False).logits[0]
        return logits.float()


def decoder_of(model: Any) -> Any:
    """The module of a transformers language model that ends with normed states [.., hidden]."""
    decoder = model.get_decoder()
    if decoder is model:  # Llama 4's text model names its parts as if it were part of the whole one
        return model.model
    if isinstance(decoder, torch.nn.Linear):  # so ModernBERT calls its head
        return model.base_model
    return decoder


class _Finished:
    """The output of a decoder that is done. Whatever else its model looks for there is None."""

    def __init__(self, hidden: Tensor) -> None:
        self.last_hidden_state = hidden

    def __getitem__(self, index: int | slice) -> Any:
        return (self.last_hidden_state,)[index]

    def __getattr__(self, name: str) -> None:
        return None


class _StandIn(torch.nn.Module):
    """A decoder whose input is its result."""

    def forward(self, *_: Any, inputs_embeds: Tensor, **__: Any) -> _Finished:
        return _Finished(inputs_embeds)
