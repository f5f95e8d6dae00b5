"""Rounds the weights of a model to few bits, layer by layer, as `yaie quantize` asks for.

The model is transformers' own, in float32. A layer's inputs are those that the rounded layers before it
give: what they lost is part of what its weights are fitted to.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from yaie.core.contracts.quantizing import Int4
from yaie.core.errors import ModelError
from yaie.core.quantized import Int4Weight, Int8Weight

Packed = Int4Weight | Int8Weight
BATCH = 8
"""Windows that go through a layer at a time."""
SHARES = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
"""Of the range of a group's weights, that are tried."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How weights are rounded. bits: 4 or 8. For 4 bits, group_size: inputs that share a scale; gptq:
    False rounds each weight to the nearest; symmetric: False gives each group a zero of its own."""

    bits: int
    group_size: int = 128
    gptq: bool = True
    symmetric: bool = True


def windows(tokenizer: Any, texts: Iterable[str], length: int, count: int) -> Tensor:
    """Texts one after the other, cut into [at most count, length] tokens. Raises ModelError if they do
    not fill one window."""
    tokens: list[int] = []
    for text in texts:
        tokens += tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(tokens) >= count * length:
            break
    found = min(count, len(tokens) // length)
    if not found:
        raise ModelError(f"the calibration text has {len(tokens)} tokens; one window has {length}")
    return torch.tensor(tokens[: found * length]).view(found, length)


def decoder_layers(model: nn.Module) -> tuple[str, nn.ModuleList]:
    """(the name of the list, the layers). Raises ModelError for a model that has none, or has weights in
    them that are no plain products."""
    layers = getattr(getattr(model, "model", None), "layers", None)
    if not isinstance(layers, nn.ModuleList) or not any(True for _ in products(layers[0])):
        raise ModelError(
            f"{type(model).__name__} is not quantized: its layers are not those of Llama, Mistral, "
            "Qwen, Gemma, OLMo or Granite."
        )
    return "model.layers", layers


def products(layer: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """The matrix products of a layer, by name."""
    for name, module in layer.named_modules():
        if isinstance(module, nn.Linear):
            yield name, module


@torch.inference_mode()
def round_model(
    model: nn.Module,
    part: ModuleType,
    recipe: Recipe,
    calibration: Tensor | None,
    done: Callable[[str], None] = lambda _: None,
) -> dict[str, Packed]:
    """The packed weight of each product in the layers, by its full name. The model's own become what
    the codes stand for. part: lab 19. calibration: [windows, length] tokens, for GPTQ. done: called with
    each name."""
    prefix, layers = decoder_layers(model)
    packed: dict[str, Packed] = {}
    states: list[_Call] = [] if calibration is None else _first_calls(model, layers, calibration)
    for index, layer in enumerate(layers):
        hessians = _hessians(layer, index, part, states) if states else {}
        for name, module in products(layer):
            full = f"{prefix}.{index}.{name}"
            weight = _round(module.weight, part, recipe, hessians.get(name), full)
            packed[full] = weight
            codec = part.Int8() if isinstance(weight, Int8Weight) else part.Int4()
            module.weight.copy_(codec.dequantize(weight))
            done(full)
        states = [state.after(layer, index) for state in states]
    return packed


def _round(
    weight: Tensor, part: ModuleType, recipe: Recipe, hessian: Any | None, name: str
) -> Packed:
    inputs, size, symmetric = weight.shape[1], recipe.group_size, recipe.symmetric
    result: Packed
    if recipe.bits == 8:
        result = part.Int8().quantize(weight)
        return result
    if inputs % size or size % 8 or weight.shape[0] % 8:
        raise ModelError(
            f"{name} has {inputs} inputs and {weight.shape[0]} outputs: groups of {size} do not divide "
            "them. Choose another --group-size, of those that are multiples of 8."
        )
    if hessian is None:
        result = part.Int4().quantize(weight, size, symmetric=symmetric)
        return result
    block = size if size > 128 else 128 - 128 % size
    int4 = part.Int4()
    # Without zeros, to cut outliers off costs more than it brings: 18% of the tutor's divergence.
    gptq = part.Gptq(int4 if symmetric else FittedGrids(int4))
    result = gptq.quantize(weight, hessian.hessian, size, symmetric=symmetric, block=block)
    return result


class FittedGrids:
    """An `Int4` whose grids may leave the outermost weights of a group out: of some narrower ones that
    with the least squared error is taken (GPTQ's published code has it as `mse`)."""

    def __init__(self, int4: Int4) -> None:
        self._int4 = int4
        self.codes, self.pack = int4.codes, int4.pack

    def grid(self, group: Tensor, *, symmetric: bool = True) -> tuple[Tensor, Tensor]:
        """See `Int4.grid`."""
        scales, zeros = self._int4.grid(group, symmetric=symmetric)
        least = self._error(group, scales, zeros)
        for share in SHARES:
            narrower = self._int4.grid(share * group, symmetric=symmetric)
            error = self._error(group, *narrower)
            is_better = error < least
            least = torch.where(is_better, error, least)
            scales = torch.where(is_better, narrower[0], scales)
            zeros = torch.where(is_better, narrower[1], zeros)
        return scales, zeros

    def _error(self, group: Tensor, scales: Tensor, zeros: Tensor) -> Tensor:
        """[out]: of all inputs."""
        codes = self._int4.codes(group, scales, zeros)
        return ((codes - zeros[:, None]) * scales[:, None].float() - group).square().sum(dim=1)


@dataclass(frozen=True, slots=True)
class _Call:
    """Of a layer: hidden states, and what else each of the layers is called with."""

    hidden: Tensor
    others: list[dict[str, Any]]

    def run(self, layer: nn.Module, index: int) -> Tensor:
        """What the layer of this number gives."""
        out = layer(self.hidden, **self.others[index])
        hidden: Tensor = out[0] if isinstance(out, tuple) else out
        return hidden

    def after(self, layer: nn.Module, index: int) -> "_Call":
        """The call of the next layer."""
        return _Call(self.run(layer, index), self.others)


class _Caught(Exception):
    """The first layer has been called: no more is needed."""


def _first_calls(model: nn.Module, layers: nn.ModuleList, calibration: Tensor) -> list[_Call]:
    """What the first layer is called with. Masks and positions, which layers may not share, depend on
    the shape of a batch alone: a whole run for each shape tells them."""
    calls: list[_Call] = []
    others: dict[int, list[dict[str, Any]]] = {}
    for tokens in calibration.split(BATCH):
        if len(tokens) not in others:
            others[len(tokens)] = _others(model, layers, tokens)

        def catch(_: nn.Module, args: tuple[Tensor, ...]) -> None:
            calls.append(_Call(args[0], others[len(args[0])]))
            raise _Caught

        hook = layers[0].register_forward_pre_hook(catch)
        try:
            model(tokens, use_cache=False)
        except _Caught:
            pass
        finally:
            hook.remove()
    return calls


def _others(model: nn.Module, layers: nn.ModuleList, tokens: Tensor) -> list[dict[str, Any]]:
    """What each layer is called with beside hidden states."""
    found: list[dict[str, Any]] = []
    hooks = [
        layer.register_forward_pre_hook(
            lambda _, args, others: found.append(others), with_kwargs=True
        )
        for layer in layers
    ]
    try:
        model(tokens, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _hessians(
    layer: nn.Module, index: int, part: ModuleType, calls: Sequence[_Call]
) -> dict[str, Any]:
    """Of each product of a layer. Those of the same input (query, key and value) share one."""
    leaders = _leaders(layer, index, calls[0])
    found: dict[str, Any] = {}
    hooks = []
    for name, module in products(layer):
        if leaders[name] == name:
            found[name] = part.Hessian(module.in_features, module.weight.device)
            add = found[name].add
            hooks.append(module.register_forward_pre_hook(lambda _, args, add=add: add(args[0])))
    try:
        for call in calls:
            call.run(layer, index)
    finally:
        for hook in hooks:
            hook.remove()
    return {name: found[leader] for name, leader in leaders.items()}


def _leaders(layer: nn.Module, index: int, call: _Call) -> dict[str, str]:
    """For each product of a layer, the first one that is called with the same tensor."""
    inputs: list[tuple[Tensor, str]] = []  # kept, so that no other tensor takes its place in memory
    leaders: dict[str, str] = {}

    def note(name: str, x: Tensor) -> None:
        leaders[name] = next((other for same, other in inputs if same is x), name)
        inputs.append((x, name))

    hooks = [
        module.register_forward_pre_hook(lambda _, args, name=name: note(name, args[0]))
        for name, module in products(layer)
    ]
    try:
        call.run(layer, index)
    finally:
        for hook in hooks:
            hook.remove()
    return leaders
