"""A model of transformers for text and more, without weights: which of its modules are the decoder."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

from yaie.core.errors import ModelError


@dataclass(frozen=True, eq=False)
class Skeleton:
    """Where the decoder and its output head are in a model.

    decoder, head: their paths. is_whole: whether the head lies within the decoder, which then is a whole
    language model. rename: from a checkpoint's name of a tensor to that in the model. converted: what
    transformers makes of several tensors, or changes in one, by the patterns of their names.
    """

    decoder: str
    head: str
    is_whole: bool
    rename: Callable[[str], str]
    converted: frozenset[str]

    @classmethod
    def of(cls, model_class: Any, config: Any) -> "Skeleton":
        """Read off a model that is built without memory. Raises ModelError where it has no decoder and
        head to be found."""
        import torch

        with torch.device("meta"):
            model = made(model_class, config)
        paths = {id(module): path for path, module in model.named_modules()}
        decoder = paths.get(id(model.get_decoder()), "")
        head = paths.get(id(model.get_output_embeddings()), "")
        if not decoder or not head:
            raise ModelError(
                f"the architecture {model_class.__name__} is not supported: transformers does not say "
                "which of its modules are the language model and the output head, so that its text half "
                "cannot be served alone."
            )
        is_whole = head.startswith(f"{decoder}.")
        return cls(decoder, head, is_whole, renaming(model), conversions(model))

    def name_alone(self, name: str) -> str | None:
        """What a checkpoint of the decoder alone calls this tensor of a checkpoint of the whole model:
        `model...` or `lm_head...`; None for a tensor of another part."""
        place = self.rename(name)
        if place.startswith(f"{self.decoder}."):
            inner = place.removeprefix(f"{self.decoder}.")
            return inner if self.is_whole else f"model.{inner}"
        if place.startswith(f"{self.head}."):
            return f"lm_head.{place.removeprefix(f'{self.head}.')}"
        return None


def without_towers(model_class: Any, skeleton: Skeleton) -> Any:
    """The class of transformers, whose models keep nothing but decoder and head.

    It has the class's own name, by which transformers finds its table of tensor names.
    """
    kept = (skeleton.decoder, skeleton.head)

    def build(self: Any, config: Any, *more: Any, **options: Any) -> None:
        made(lambda one: model_class.__init__(self, one, *more, **options), config)
        _strip(self, "", kept)

    fields = {"__init__": build, "__module__": model_class.__module__}
    return type(model_class.__name__, (model_class,), fields)


def _strip(module: Any, path: str, kept: tuple[str, ...]) -> None:
    """Remove the modules and parameters below `module` that neither lead to a kept one nor lie in it."""
    module._is_hf_initialized = True  # or transformers would fill what is not there
    for name in list(module._parameters):
        module._parameters[name] = None
    for name, child in list(module._modules.items()):
        place = f"{path}{name}"
        if child is None or place in kept:
            continue
        if any(one.startswith(f"{place}.") for one in kept):
            _strip(child, f"{place}.", kept)
        else:
            module._modules[name] = None


def renaming(model: Any) -> Callable[[str], str]:
    """From a checkpoint's name of a tensor to the name in `model`, by transformers' own tables, without
    what they do to the tensors themselves."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightRenaming, rename_source_key

    tables = get_model_conversion_mapping(model)
    renamings = [one for one in tables if isinstance(one, WeightRenaming)]
    known, prefix = dict.fromkeys(model.state_dict(), True), model.base_model_prefix

    def rename(name: str) -> str:
        place: str = rename_source_key(name, renamings, [], prefix, known)[0]
        return place

    return rename


def conversions(model: Any) -> frozenset[str]:
    """Patterns of the names of a checkpoint's tensors that become others in `model`."""
    from transformers.conversion_mapping import get_model_conversion_mapping
    from transformers.core_model_loading import WeightConverter

    tables = get_model_conversion_mapping(model)
    changed = [one.source_patterns for one in tables if isinstance(one, WeightConverter)]
    return frozenset(pattern for patterns in changed for pattern in patterns)


def made(make: Callable[[Any], Any], config: Any) -> Any:
    """`make(config)`, where a tower may be a model of a library (timm) that is not there."""
    try:
        return make(config)
    except ImportError:
        with _LOCK, _other_libraries_left_out():
            return make(config)


_LOCK = Lock()


@contextmanager
def _other_libraries_left_out() -> Iterator[None]:
    """Meanwhile transformers makes no model of timm: as a tower it is not wanted. On one thread at a
    time, as it changes what transformers calls."""
    from torch import nn
    from transformers import AutoModel
    from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

    own: Any = AutoModel.__dict__["from_config"]

    def from_config(config: Any, *more: Any, **options: Any) -> Any:
        if "TimmWrapperModel" in str(MODEL_MAPPING_NAMES.get(config.model_type)):
            return nn.Module()
        return own.__func__(AutoModel, config, *more, **options)

    AutoModel.from_config = from_config
    try:
        yield
    finally:
        AutoModel.from_config = own
