"""`ModelLoader`: from the name of a model to one that runs, with its tokenizer."""

import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from yaie.core.config import EngineConfig
from yaie.core.contracts import TransformerOps
from yaie.core.errors import ConfigError, ModelError, YaieError
from yaie.core.gemm import BlockGemm, PackedGemm
from yaie.models import (  # noqa: F401  (importing registers them)
    gemma,
    gemma4,
    gpt2,
    gpt_oss,
    granite,
    granite4,
    lfm2,
    llama,
    mistral,
    olmo,
    qwen2,
    qwen3,
    qwen3_5,
)
from yaie.models.adapter import ModelAdapter, registered_adapter
from yaie.models.config import head_dims, read_config, told
from yaie.models.generation import eos_token_ids, read_generation_config, sampling_defaults
from yaie.models.hub import fetch_model, find_model
from yaie.models.json_files import read_json
from yaie.models.loading_bar import loading_bar
from yaie.models.lookalikes import GGUF_LIST
from yaie.models.packing import PackedFormat, product_names, read_format
from yaie.models.rope import served_context
from yaie.models.schemes import Packing
from yaie.models.schemes.cutting import check_cuts
from yaie.models.shard_shapes import check_shapes, fitting_sizes
from yaie.models.stated import misfits, refuse_absurd
from yaie.models.supported import check_architecture, unsupported
from yaie.models.token_ids import check_end_token, check_token_ids
from yaie.models.tokenizer import Tokenizer
from yaie.models.tying import heads_differ, renamed
from yaie.models.weights import (
    checkpoint_files,
    is_gguf_list,
    read_stored,
    read_tensors,
    served_bytes,
    stored_shapes,
    total_bytes,
)
from yaie.models.whole import Whole
from yaie.system.processor import multiplies_bfloat16

if TYPE_CHECKING:
    from yaie.models.text_half import TextHalf

FEWEST_IN_BFLOAT16 = 100_000_000
"""Weights from which half the bytes are worth rounded numbers on a CPU."""


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """What the engine needs to know of a model.

    folder: where its files lie.
    name: to serve it under. architecture, model_type: as config.json calls it.
    eos_token_ids: any of these ends an output.
    sampling_defaults: fields of SamplingParams that the model's authors recommend.
    max_length: longest sequence, prompt and output together: the model's limit, or
        `EngineConfig.max_model_len` if that is shorter.
    weight_bytes: memory that the weights take.
    dtype_note: why it is this dtype, if that has to be told.
    left_out: what its checkpoint takes beside text and is not served with, such as "images"; "" if
        nothing is left out.
    """

    adapter: ModelAdapter
    tokenizer: Tokenizer
    folder: Path
    name: str
    architecture: str
    model_type: str
    eos_token_ids: frozenset[int]
    sampling_defaults: dict[str, Any]
    max_length: int
    dtype: torch.dtype
    device: torch.device
    num_parameters: int
    weight_bytes: int
    dtype_note: str = ""
    left_out: str = ""


class ModelLoader:
    """Loads what `config.model` names: first config.json, which decides what the weights will run on,
    then the rest. Weights are read from safetensors only, and no code is run that comes with a model
    (its chat template is, in a sandbox).

    name: to serve the model under. architecture, model_type: as config.json calls it.
    head_dims: sizes that its heads may have (see `config.head_dims`). is_packed: whether weights are
    stored in few bits. keeps_states: whether layers keep a state in place of keys and values.
    brings_head: whether the checkpoint may have a head that drafts.
    max_length, dtype, device: as in `LoadedModel`; dtype by what is there of the checkpoint so far.
    """

    def __init__(
        self, config: EngineConfig, progress: bool | None = None, *, force_generic: bool = False
    ) -> None:
        """Find the model and read its config.json. No weight is read or downloaded.

        progress: show bars on stderr; only if that is a terminal by default.
        force_generic: use the generic adapter even where there is a hand-written one (for comparison).
        Raises ModelError if the model cannot be had or run, ConfigError if a setting does not fit it.
        """
        self._progress = sys.stderr.isatty() if progress is None else progress
        self.device = resolve_device(config)
        self._source = find_model(config.model, config.revision)
        self.name = self._source.name
        self._config = read_config(self._source.folder)
        self.architecture: str = self._config.architectures[0]
        self.model_type: str = self._config.model_type
        self.head_dims = head_dims(self._config)
        how = read_format(self._source.folder, self._config)
        self._multiplies_out = how is not None and how.on_load
        self._format = None if self._multiplies_out else how
        wanted = config.max_model_len
        if self._format is not None:
            _refuse_states(self.architecture, self._config, wanted)
        force_generic = force_generic or _leaves_products_out(self._format, self._config)
        self._half = _find_half(self._config, force_generic, wanted)
        if self._half is not None:
            self._config, self._kind = self._half.config, self._half.kind
        else:
            self._kind = _adapter_class(self.architecture, self._config, force_generic, wanted)
        if self._format is not None and not self._kind.packs(self._config):
            self._kind = _adapter_class(self.architecture, self._config, True, wanted)
        self._wanted = config.dtype
        self.is_packed = self._format is not None
        self.keeps_states = self._kind.keeps_states
        self.brings_head = self._kind.brings_head
        self.dtype = choose_dtype(self._wanted, self._config, self.device, self._source.folder)
        self.max_length = served_context(config.max_model_len, self._decoder_config)

    def load(
        self,
        ops: TransformerOps,
        dtypes: Collection[torch.dtype] | None = None,
        products: Callable[[], PackedGemm] | None = None,
        shard: Whole | None = None,
        blocks: Callable[[], BlockGemm | None] | None = None,
    ) -> LoadedModel:
        """Download what is missing, and load. ops: the part that a hand-written adapter computes with.
        dtypes: those that a CPU's dtype is chosen from; all if None. products: makes what multiplies
        packed weights, asked for if the checkpoint has some. shard: what is held of the model; all if
        None. blocks: makes what multiplies a GGUF's weights or experts in MXFP4 as they lie in the file,
        asked for if the model has some; without it they are unpacked.

        Raises ModelError if weights or tokenizer cannot be had or do not fit config.json.
        """
        folder = self.fetch()
        tokenizer = Tokenizer.load(folder, self.model_type)
        generation = read_generation_config(folder)
        vocab_size = getattr(self._decoder_config, "vocab_size", None)
        if isinstance(vocab_size, int):  # or it is known once the model is there
            self._check_ids(folder, generation, tokenizer, vocab_size)
        adapter, folder = self.load_adapter(ops, dtypes, products, shard, blocks)
        self._check_ids(folder, generation, tokenizer, adapter.vocab_size)
        return LoadedModel(
            adapter=adapter,
            tokenizer=tokenizer,
            folder=folder,
            name=self.name,
            architecture=self.architecture,
            model_type=self.model_type,
            eos_token_ids=eos_token_ids(
                generation, self._config, tokenizer.eos_token_id, adapter.vocab_size
            ),
            sampling_defaults=sampling_defaults(generation),
            max_length=adapter.max_length,
            dtype=self.dtype,
            device=self.device,
            num_parameters=adapter.num_parameters,
            weight_bytes=adapter.weight_bytes,
            dtype_note=self._dtype_note,
            left_out=self._half.left_out if self._half is not None else "",
        )

    def fetch(self) -> Path:
        """Download what is missing; returns the folder. Raises ModelError."""
        return fetch_model(self._source, self._progress)

    def load_adapter(
        self,
        ops: TransformerOps,
        dtypes: Collection[torch.dtype] | None = None,
        products: Callable[[], PackedGemm] | None = None,
        shard: Whole | None = None,
        blocks: Callable[[], BlockGemm | None] | None = None,
    ) -> tuple[ModelAdapter, Path]:
        """The model without a tokenizer, and its folder. Arguments and errors are those of `load`."""
        folder = self.fetch()
        files = checkpoint_files(folder)
        self.dtype = choose_dtype(self._wanted, self._config, self.device, folder, dtypes)
        shapes, names = stored_shapes(files), {}
        if self._half is not None:
            names = self._half.stored_names(shapes)
            shapes = {name: shapes[stored] for name, stored in names.items()}
        stated, prefix = self._kind.stated(self._config), self._kind.checkpoint_prefix
        wrong = misfits(self._decoder_config, stated, prefix, shapes)
        refuse_absurd(folder, wrong)
        swapped = self._settle_head(files, shapes, names)
        try:
            gemm = self._block_gemm(files, shapes, blocks)
            adapter = self._adapter(ops, products, shard, gemm, shapes)
            with loading_bar(self.name, total_bytes(files), self._progress) as advance:
                # A rank reads its part of each tensor, and blocks of a GGUF are taken as they lie there.
                by_parts = shard is not None or (
                    is_gguf_list(files) and adapter.packing is not None
                )
                read = read_stored if by_parts else read_tensors
                tensors: Iterator[tuple[str, Any]] = read(files, advance)
                if self._half is not None:
                    tensors = self._half.language_tensors(tensors)
                if self._format is not None:
                    tensors = iter(self._format.usual_names(tensors))
                if self._multiplies_out and gemm is None:
                    from yaie.models.mxfp4 import multiplied_out

                    tensors = multiplied_out(tensors, self.dtype)
                adapter.load_weights(renamed(tensors, *swapped) if swapped else tensors)
        except ModelError as error:
            if wrong:
                raise ModelError(f"{error.message} {'; '.join(map(str, wrong))}.") from error
            raise
        except (YaieError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # of torch and of transformers, on numbers that nobody foresaw
            if self._format is not None:  # what multiplies packed weights may be a learner's
                raise
            raise ModelError(
                f"{folder / 'config.json'} describes a model that cannot be made of the weights beside "
                f"it ({'; '.join([f'{type(error).__name__}: {told(error)}', *map(str, wrong)])}). Check "
                "its numbers, and that there is memory for them."
            ) from error
        return adapter, folder

    def _settle_head(
        self, files: list[Path], shapes: dict[str, tuple[int, ...]], names: dict[str, str]
    ) -> tuple[str, str] | None:
        """Tie embedding and head as transformers would; returns the name of the one that is there, and
        the name that it is wanted under, where that is another. names: in the files, if not the same."""
        if not getattr(self._config, "tie_word_embeddings", False) or not self._kind.tied_tensors:
            return None
        table, head = self._kind.tied_tensors
        table = next((name for name in shapes if self._kind.short_name(name) == table), table)
        if head in shapes and table not in shapes:
            return head, table
        stored = names.get(table, table), names.get(head, head)
        if head in shapes and heads_differ(files, *stored, self.dtype):
            self._config.tie_word_embeddings = False
        return None

    def _check_ids(
        self, folder: Path, generation: dict[str, Any], tokenizer: Tokenizer, vocab_size: int
    ) -> None:
        check_token_ids(folder / "generation_config.json", generation, vocab_size)
        stated = read_json(folder / "config.json")
        check_token_ids(folder / "config.json", stated, vocab_size)
        check_token_ids(folder / "config.json", stated.get("text_config") or {}, vocab_size)
        check_end_token(folder, tokenizer, vocab_size)

    def check_ranks(self, config: EngineConfig) -> None:
        """Raise ConfigError unless the model can be split over the ranks that `config` asks for."""
        if config.num_ranks == 1:
            return
        model, kind = self._config, self._kind
        if not kind.takes_shards:
            raise ConfigError(
                f"{self.architecture} runs on one rank as yet: leave out tensor_parallel and "
                "pipeline_parallel. Llama, Mistral, Qwen2, Qwen3, Gemma 2 and 3, Granite 3, gpt-oss, "
                "GPT-2, LFM2 and Qwen3.5 run on several.",
                param="tensor_parallel",
            )
        if kind.keeps_states and config.pipeline_parallel > 1:
            raise ConfigError(
                f"pipeline_parallel does not go with {self.architecture}, whose layers keep a state "
                "beside keys and values: take tensor_parallel, which splits each layer",
                param="pipeline_parallel",
            )
        size, heads = config.tensor_parallel, model.num_attention_heads
        kv_heads = getattr(model, "num_key_value_heads", None) or heads
        inner = kind.inner_features(model)
        check_shapes(
            self.name,
            size,
            config.pipeline_parallel,
            heads=heads,
            kv_heads=kv_heads,
            inner=inner,
            layers=model.num_hidden_layers,
            even=kind.even_counts(model),
        )
        if self._format is not None and size > 1:
            sizes = fitting_sizes(heads, kv_heads, inner)
            check_cuts(self.name, size, self._format, partial(kind.cuts, model), sizes)

    def _block_gemm(
        self,
        files: list[Path],
        names: Collection[str],
        blocks: Callable[[], BlockGemm | None] | None,
    ) -> BlockGemm | None:
        """What multiplies weights that stay in blocks; None if there are none, or if they are unpacked.
        names: of the checkpoint's tensors."""
        if blocks is None or self._format is not None:
            return None
        if not self._multiplies_out:
            takes_blocks = self._kind.takes_packed or self._kind.takes_mxfp4
            return blocks() if is_gguf_list(files) and takes_blocks else None
        from yaie.models.mxfp4 import BLOCKS, GGML

        has_some = any(name.endswith(BLOCKS) for name in names)
        gemm = blocks() if self._kind.takes_mxfp4 and has_some else None
        return gemm if gemm is not None and GGML in gemm.kinds else None

    def _adapter(
        self,
        ops: TransformerOps,
        products: Callable[[], PackedGemm] | None,
        shard: Whole | None,
        gemm: BlockGemm | None,
        names: Collection[str],
    ) -> ModelAdapter:
        how = self._config, ops, self.dtype, self.device, self.max_length
        more: dict[str, Any] = {} if shard is None else {"shard": shard}
        if self._format is None:
            if gemm is not None:
                from yaie.models.schemes.blocks import BlockPacking

                method = "mxfp4" if self._multiplies_out else "gguf"
                more["packing"] = BlockPacking(gemm, PackedFormat(method, 0))
            return self._kind(*how, **more)
        if products is None:
            raise ModelError(
                f"the weights of {self.name} are quantized, and nothing multiplies them"
            )
        packed = self._format.seen_in(names, self._kind.short_name)
        return self._kind(*how, packing=Packing(packed, products()), **more)

    @property
    def _decoder_config(self) -> Any:
        """Of what continues texts; `_config` itself, unless that is of a model for more than text."""
        return self._config.get_text_config(decoder=True)

    @property
    def _dtype_note(self) -> str:
        if self._wanted != "auto" or self.device.type != "cpu" or self.dtype == torch.float32:
            return ""
        from_gguf = (self._source.folder / GGUF_LIST).is_file()
        how = "where the GGUF is not packed" if from_gguf else "as it is stored"
        return f"bfloat16, {how}; --dtype float32 computes in full precision"


def _leaves_products_out(how: PackedFormat | None, config: Any) -> bool:
    """Whether products of layers are left in floating point, which hand-written adapters do not know."""
    if how is None:
        return False
    layers = getattr(config.get_text_config(decoder=True), "num_hidden_layers", 0)
    return not how.packs_all(product_names(layers))


def must_stay_unpacked(architecture: str, config: Any, wanted: int | None) -> bool:
    """Whether its layers keep a state, or those of its text half, by an adapter that takes no packed
    weights. wanted: the longest sequence, if not the model's own."""
    half = _find_half(config, False, wanted)
    adapter = registered_adapter(architecture, config) if half is None else half.kind
    return adapter is not None and adapter.keeps_states and not adapter.takes_packed


def _refuse_states(architecture: str, config: Any, wanted: int | None) -> None:
    """Raise ModelError for a model with packed weights whose layers keep a state."""
    if must_stay_unpacked(architecture, config, wanted):
        raise unsupported(
            architecture,
            "its weights are quantized, and models whose layers keep a state are served from floating "
            "point as yet",
        )


def _find_half(config: Any, force_generic: bool, wanted: int | None) -> "TextHalf | None":
    """Of a model that takes more than text; None for any other, and for one that cannot be halved."""
    if not hasattr(config, "thinker_config") and config.get_text_config(decoder=True) is config:
        return None
    from yaie.models.text_half import find_text_half

    return find_text_half(config, force_generic, wanted)


def _adapter_class(
    architecture: str, config: Any, force_generic: bool, wanted: int | None
) -> type[ModelAdapter]:
    """Raises ModelError for an architecture that cannot be served."""
    adapter = None if force_generic else registered_adapter(architecture, config)
    if adapter is None:
        from yaie.models.generic import GenericAdapter

        check_architecture(architecture, config, wanted)
        adapter = GenericAdapter
    return adapter


def choose_dtype(
    wanted: str,
    config: Any,
    device: torch.device,
    folder: Path,
    dtypes: Collection[torch.dtype] | None = None,
) -> torch.dtype:
    """What `EngineConfig.dtype` comes to for a checkpoint, as much of it as is in `folder`. config: of
    the model. dtypes: those that a CPU's is chosen from; all if None."""
    if wanted != "auto":
        dtype: torch.dtype = getattr(torch, wanted)
        return dtype
    stored = getattr(config, "dtype", None)
    if device.type != "cpu":
        return stored if isinstance(stored, torch.dtype) else torch.bfloat16
    pays = (
        stored == torch.bfloat16
        and (dtypes is None or torch.bfloat16 in dtypes)
        and _num_bytes(folder) >= FEWEST_IN_BFLOAT16 * torch.bfloat16.itemsize
        and multiplies_bfloat16()
    )
    return torch.bfloat16 if pays else torch.float32


def _num_bytes(folder: Path) -> int:
    """Of the checkpoint in a folder, in bfloat16; 0 where it has not been downloaded."""
    try:
        return served_bytes(checkpoint_files(folder), torch.bfloat16.itemsize)
    except ModelError:
        return 0


def resolve_device(config: EngineConfig) -> torch.device:
    """Where the model runs. Raises ConfigError for a GPU that is not there."""
    wanted = config.device
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError(
            "device 'cuda' was asked for, but torch sees no GPU. Use device 'cpu', or install a "
            "torch with CUDA and check that nvidia-smi lists the GPU.",
            param="device",
        )
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(wanted)
