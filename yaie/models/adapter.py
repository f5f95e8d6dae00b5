"""`ModelAdapter`: how a model family plugs into the engine. The documented extension point."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from yaie.core.batch import KVLayerSpec
from yaie.core.contracts import Attend, TransformerOps
from yaie.core.contracts.states import StateLayerSpec
from yaie.core.errors import ModelError
from yaie.models.json_files import shown
from yaie.models.layout import Destination, Layout, Stored
from yaie.models.linear import SummedLinear, make_linear, tied_linear
from yaie.models.schemes import Packing, Scheme
from yaie.models.schemes.cutting import Cuts
from yaie.models.stated import Stated
from yaie.models.whole import Whole


class ModelAdapter(ABC):
    """A decoder that keeps nothing of a sequence itself: keys and values live in the engine's pools, and
    so do the states of layers that keep one.

    To add a family, write one class in a module of its own and register it under the name that its
    checkpoints carry in `config.json` as `architectures[0]`:

        @register("TinyForCausalLM")
        class TinyAdapter(ModelAdapter):
            checkpoint_prefix = "model."            # what most tensor names begin with

            def __init__(self, config, ops, dtype, device, max_length):
                super().__init__(config, ops, dtype, device, max_length)
                self.kv_layers = [KVLayerSpec(num_kv_heads=2, head_dim=64)] * config.num_hidden_layers
                self.embedding = self.empty(config.vocab_size, config.hidden_size)
                self.head = self.linear(whole(config.hidden_size, config.vocab_size))
                ...

            def destinations(self):                 # where each tensor of a checkpoint goes
                return {
                    "embed_tokens.weight": Destination(self.embedding),
                    **self.head.destinations("lm_head"),
                    ...
                }

            def forward(self, token_ids, positions, attend):
                hidden = self.embedding[token_ids]
                for index, layer in enumerate(self.layers):
                    q, k, v = ...                   # [T, heads, d], [T, kv_heads, d] twice
                    hidden = hidden + layer.output(attend(index, q, k, v, AttentionSpec(scale)))
                return hidden

            def logits(self, hidden):
                return self.head.in_float32(hidden)

    A family with rotary positions hands `attend` a `Rotation` as well, instead of rotating itself.

    Three rules make it fast and right. The T tokens of a call are a flat batch of several sequences,
    prompt chunks and single tokens side by side: whatever depends on a token's place must use
    `positions`, and only `attend` may mix tokens, and what works on states (`hybrid`). Products with
    the same input are one product with a `stacked` layout (query, key and value; gate and up). Norms,
    rotations and activations come from `ops`, the part that a learner writes.

    Families without an adapter run through `yaie.models.generic`, slower. An adapter that covers only
    some configurations of its architecture says so in `handles`; the others then run through it too.

    kv_layers: one entry for each attention layer; its index is the first argument of `attend`.
    windows: for each attention layer of the model, the most keys that a query sees; None for all of a
        text. () says that of all layers.
    state_layers: one entry for each layer that keeps a state (`yaie.models.hybrid`); most have none.
    vocab_size: width of the logits.
    max_length: longest sequence, in tokens. Never longer than what the constructor was given.
    num_parameters, weight_bytes: set by `load_weights`; of the model, and of what is held here.
    """

    takes_packed: ClassVar[bool] = False
    """Whether its layers' products are made by `layer_linear`, so that a checkpoint may pack them."""

    takes_shards: ClassVar[bool] = False
    """Whether it holds no more of the model than its `shard`. If no layer keeps a state, there may be
    stages: then it has `embedded` and `continued`."""

    keeps_states: ClassVar[bool] = False
    """Whether some of its layers keep a state instead of keys and values: then it has `state_layers`."""

    takes_mxfp4: ClassVar[bool] = False
    """Whether it takes experts in MXFP4 as they are published, and layers as a GGUF has them, where a
    backend has products for them."""

    rows_meet: bool = False
    """Whether rows of a step meet in products whose size depends on what the rows are, as at experts:
    then rounding may make a row come out otherwise beside others."""

    brings_head: ClassVar[bool] = False
    """Whether its checkpoints may have a head that drafts beside the model."""

    checkpoint_prefix: str = ""
    """Leading part of tensor names that some checkpoints of the family leave out."""

    ignored_tensors: tuple[str, ...] = ()
    """Endings of the names of tensors that old checkpoints contain and that are not weights."""

    tied_tensors: ClassVar[tuple[str, str] | None] = None
    """Embedding table, without `checkpoint_prefix`, and output head: one with `tie_word_embeddings`.
    A checkpoint that holds both, and not alike, is loaded as if it were false, as transformers does."""

    kv_layers: list[KVLayerSpec]
    windows: Sequence[int | None] = ()
    state_layers: Sequence[StateLayerSpec] = ()
    vocab_size: int
    max_length: int
    num_parameters: int = 0
    weight_bytes: int = 0

    def __init__(
        self,
        config: Any,
        ops: TransformerOps,
        dtype: torch.dtype,
        device: torch.device,
        max_length: int,
        packing: Packing | None = None,
        shard: Whole | None = None,
    ) -> None:
        """config: a transformers PretrainedConfig. max_length: no sequence will be longer. packing: how
        the weights of the layers' products are stored, if not as they are. shard: what is held of the
        model; all if None."""
        self.config = config
        self.packing = packing
        self.shard = shard or Whole()
        self.ops = ops
        self.dtype = dtype
        self.device = device
        self.max_length = max_length
        self.vocab_size = config.vocab_size

    @classmethod
    def handles(cls, config: Any) -> bool:
        """Whether this adapter computes what `config` describes."""
        return True

    @classmethod
    def stated(cls, config: Any) -> Sequence[Stated]:
        """The dimensions of tensors that a config gives, to be compared before any memory is taken."""
        return ()

    @classmethod
    def short_name(cls, name: str) -> str:
        """A tensor's name without `checkpoint_prefix`."""
        return name.removeprefix(cls.checkpoint_prefix)

    @classmethod
    def packs(cls, config: Any) -> bool:
        """Whether the products of such a model's layers may be packed."""
        return cls.takes_packed

    @classmethod
    def inner_features(cls, config: Any) -> int:
        """Width of a feed-forward layer between its two products."""
        width: int = config.intermediate_size
        return width

    @classmethod
    def even_counts(cls, config: Any) -> dict[str, int]:
        """What else ranks that split a layer must divide evenly, beside heads and inner features: in
        words, and how many there are."""
        return {}

    @classmethod
    def cuts(cls, config: Any, size: int) -> Cuts:
        """What ranks split of a layer's products, for an adapter that takes packed weights."""
        raise NotImplementedError(f"{cls.__name__} takes no packed weights")

    def empty(self, *shape: int) -> Tensor:
        """An uninitialised weight of the model's dtype, on its device."""
        return torch.empty(shape, dtype=self.dtype, device=self.device)

    def linear(self, layout: Layout) -> Scheme:
        """A matrix product whose weight lies so, in the model's dtype, on its device."""
        return make_linear(layout, self.dtype, self.device)

    def layer_linear(self, layout: Layout) -> Scheme:
        """A product of a decoder layer: packed, where the checkpoint packs them."""
        return make_linear(layout, self.dtype, self.device, packing=self.packing)

    def summed_linear(self, layout: Layout) -> Scheme | SummedLinear:
        """`layer_linear` of a product whose inputs may be split over ranks."""
        if self.shard.size == 1:
            return self.layer_linear(layout)
        bias = self.empty(layout.out_features) if layout.bias else None
        return SummedLinear(self.layer_linear(replace(layout, bias=False)), bias, self.shard)

    def destinations(self) -> dict[str, Destination]:
        """Where each tensor of a checkpoint goes, by its name without `checkpoint_prefix`."""
        raise NotImplementedError(
            f"{type(self).__name__} needs `destinations` or its own `load_weights`"
        )

    @torch.inference_mode()
    def load_weights(self, tensors: Iterable[tuple[str, Stored]]) -> None:
        """Take the weights over from (name in the checkpoint, tensor) pairs, in any order.

        Raises ModelError that names tensors which are missing, unexpected or of a wrong shape.
        """
        missing = self.destinations()
        ignored = (*self.ignored_tensors, *(self.packing.format.ignored if self.packing else ()))
        unexpected: list[str] = []
        misshapen: list[str] = []
        for name, tensor in tensors:
            destination = missing.pop(self.short_name(name), None)
            if destination is None:
                if self.is_elsewhere(self.short_name(name)):
                    self.num_parameters += tensor.numel()
                elif not name.endswith(ignored):
                    unexpected.append(name)
                continue
            try:
                destination.fill(tensor)
            except ValueError as error:
                misshapen.append(f"{name} {error}")
            self.num_parameters += tensor.numel() * destination.parameters
            self.weight_bytes += destination.weight_bytes
        check_weights(missing, unexpected, misshapen)
        self.weights_loaded()

    def is_elsewhere(self, name: str) -> bool:
        """Whether a tensor that has no destination here belongs to a layer of another stage.

        name: without `checkpoint_prefix`.
        """
        return False

    def tied_head(self, table: Tensor) -> Scheme:
        """The output head of a model that uses its embedding table [vocab, hidden] for it."""
        head = tied_linear(table)
        self.weight_bytes += head.extra_bytes
        return head

    def weights_loaded(self) -> None:  # noqa: B027 (most adapters have nothing to do here)
        """Called by `load_weights` when every destination is filled."""

    @abstractmethod
    def forward(self, token_ids: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Run the layers. token_ids, positions: [T] int64; returns [T, hidden], finally normed."""

    def embedded(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        """What the first layer is given: [T, hidden]. Asked of the first stage alone."""
        raise NotImplementedError(f"{type(self).__name__} is not split into stages")

    def continued(self, states: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Run this stage's layers on states [T, hidden], which may be overwritten.

        Returns what the next stage is given, [T, hidden], or finally normed states in the last.
        """
        raise NotImplementedError(f"{type(self).__name__} is not split into stages")

    @abstractmethod
    def logits(self, hidden: Tensor) -> Tensor:
        """Scores of the next token. hidden: [m, hidden], rows of `forward`'s result.

        Returns [m, vocab_size] float32, freshly allocated: the sampler may overwrite it.
        """

    def local_logits(self, hidden: Tensor) -> Tensor:
        """What this rank has of `logits`: [m, held] float32."""
        return self.logits(hidden)

    def first_choice(self, hidden: Tensor) -> Tensor:
        """The most likely token behind each of these states [m, hidden], as greedy sampling draws it:
        [m] int64. Asked where ranks hold parts of the logits, which need not be joined for that."""
        raise NotImplementedError(f"{type(self).__name__} is not split over ranks")


def of_other_layers(name: str, prefix: str, num_layers: int, held: range) -> bool:
    """Whether a tensor `<prefix>.<index>.<...>` is of a layer that another stage has."""
    start, _, rest = name.partition(".")
    index = rest.partition(".")[0]
    if start != prefix or not index.isdigit():
        return False
    return int(index) < num_layers and int(index) not in held


def check_activation(name: Any, known: Container[str]) -> None:
    """Raise ModelError for an activation function that transformers does not know."""
    if name not in known:
        raise ModelError(
            f"config.json: the activation (hidden_act, or activation_function) is {shown(name)}, which "
            "this installation of transformers does not have. Correct it, or fetch the model again."
        )


def check_weights(
    missing: Iterable[str], unexpected: Iterable[str], misshapen: Iterable[str]
) -> None:
    """Raise ModelError if a checkpoint and the model disagree; names the first few of each kind."""
    problems = [
        f"{len(names)} {what} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
        for what, names in (
            ("missing", sorted(missing)),
            ("unexpected", sorted(unexpected)),
            ("of a wrong shape", sorted(misshapen)),
        )
        if names
    ]
    if problems:
        raise ModelError(
            f"the weights do not fit the model that config.json describes: {'; '.join(problems)}. "
            "Check that config.json and the safetensors files belong together; fetch the model again."
        )


_REGISTRY: dict[str, list[type[ModelAdapter]]] = {}


def register(*architectures: str) -> Callable[[type[ModelAdapter]], type[ModelAdapter]]:
    """Class decorator: this adapter serves checkpoints of these architectures, before those that were
    registered for them earlier."""

    def add(adapter: type[ModelAdapter]) -> type[ModelAdapter]:
        for name in architectures:
            _REGISTRY.setdefault(name, []).insert(0, adapter)
        return adapter

    return add


def registered_adapter(architecture: str, config: Any) -> type[ModelAdapter] | None:
    """The hand-written adapter for an architecture, if there is one that handles this config."""
    adapters = _REGISTRY.get(architecture, ())
    return next((adapter for adapter in adapters if _handles(adapter, config)), None)


def _handles(adapter: type[ModelAdapter], config: Any) -> bool:
    """Not if the config lacks what the adapter looks at: it is of another type than its architecture."""
    try:
        return adapter.handles(config)
    except AttributeError:
        return False
