"""`ModelLoader`: from the name of a model to one that runs, with its tokenizer."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from yaie.core.config import EngineConfig
from yaie.core.contracts import TransformerOps
from yaie.core.errors import ConfigError, ModelError
from yaie.models import gpt2, llama, mistral, qwen2, qwen3  # noqa: F401  (importing registers them)
from yaie.models.adapter import ModelAdapter, registered_adapter
from yaie.models.generation import eos_token_ids, read_generation_config, sampling_defaults
from yaie.models.hub import resolve_model
from yaie.models.rope import max_context
from yaie.models.supported import check_architecture, refuse_quantised
from yaie.models.tokenizer import Tokenizer
from yaie.models.weights import checkpoint_files, read_tensors, total_bytes


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """What the engine needs to know of a model.

    name: to serve it under. architecture: as config.json calls it.
    eos_token_ids: any of these ends an output.
    sampling_defaults: fields of SamplingParams that the model's authors recommend.
    max_length: longest sequence, prompt and output together: the model's limit, or
        `EngineConfig.max_model_len` if that is shorter.
    weight_bytes: memory that the weights take.
    """

    adapter: ModelAdapter
    tokenizer: Tokenizer
    name: str
    architecture: str
    eos_token_ids: frozenset[int]
    sampling_defaults: dict[str, Any]
    max_length: int
    dtype: torch.dtype
    device: torch.device
    num_parameters: int
    weight_bytes: int


class ModelLoader:
    """Loads what `config.model` names. Weights are read from safetensors only, and no code is run
    that comes with a model (its chat template is, in a sandbox)."""

    def __init__(
        self,
        config: EngineConfig,
        ops: TransformerOps,
        progress: bool | None = None,
        *,
        force_generic: bool = False,
    ) -> None:
        """ops: the part that a hand-written adapter computes with.

        progress: show bars on stderr; only if that is a terminal by default.
        force_generic: use the generic adapter even where there is a hand-written one (for comparison).
        """
        self._config = config
        self._ops = ops
        self._progress = sys.stderr.isatty() if progress is None else progress
        self._force_generic = force_generic

    def load(self) -> LoadedModel:
        """Resolve, download if needed, and load.

        Raises ModelError if the model cannot be had or run, ConfigError if a setting does not fit it.
        """
        folder, name = resolve_model(self._config.model, self._config.revision, self._progress)
        config = read_config(folder)
        architecture = config.architectures[0]
        files = checkpoint_files(folder)
        tokenizer = Tokenizer.load(folder, config.model_type)
        generation = read_generation_config(folder)
        device = resolve_device(self._config)
        dtype = self._dtype(config, device)
        adapter_class = self._adapter_class(architecture, config)
        adapter = adapter_class(config, self._ops, dtype, device, self._max_length(config))
        with _progress_bar(name, total_bytes(files), self._progress) as advance:
            adapter.load_weights(read_tensors(files, advance))
        return LoadedModel(
            adapter=adapter,
            tokenizer=tokenizer,
            name=name,
            architecture=architecture,
            eos_token_ids=eos_token_ids(generation, config, tokenizer.eos_token_id),
            sampling_defaults=sampling_defaults(generation),
            max_length=adapter.max_length,
            dtype=dtype,
            device=device,
            num_parameters=adapter.num_parameters,
            weight_bytes=adapter.weight_bytes,
        )

    def _adapter_class(self, architecture: str, config: Any) -> type[ModelAdapter]:
        adapter = None if self._force_generic else registered_adapter(architecture, config)
        if adapter is None:
            from yaie.models.generic import GenericAdapter

            check_architecture(architecture, config)
            adapter = GenericAdapter
        return adapter

    def _dtype(self, config: Any, device: torch.device) -> torch.dtype:
        name = self._config.dtype
        if name == "auto" and device.type == "cpu":
            return torch.float32
        if name == "auto":
            stored = getattr(config, "dtype", None)
            return stored if isinstance(stored, torch.dtype) else torch.bfloat16
        dtype: torch.dtype = getattr(torch, name)
        return dtype

    def _max_length(self, config: Any) -> int:
        wanted = self._config.max_model_len
        limit = max_context(config, wanted)
        if wanted is not None and wanted > limit:
            raise ConfigError(
                f"max_model_len {wanted} is beyond this model's context of {limit} tokens. Leave it "
                "out, or set it lower.",
                param="max_model_len",
            )
        return limit if wanted is None else wanted


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


def read_config(folder: Path) -> Any:
    """The transformers PretrainedConfig of a model's folder.

    Raises ModelError if there is none, or none that transformers knows without remote code, or if the
    weights are quantised.
    """
    from transformers import AutoConfig

    if not (folder / "config.json").is_file():
        raise ModelError(
            f"{folder} has no config.json, so it is not a model in Hugging Face layout. Give the folder "
            "that save_pretrained wrote, or the id of a model on the hub."
        )
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # each architecture checks its configuration in its own way
        raise ModelError(
            f"{folder / 'config.json'} cannot be used: {str(error).strip().splitlines()[0]} "
            "Models of architectures that this installation of transformers does not have are not "
            "supported, nor are those that bring their own code."
        ) from error
    if not getattr(config, "architectures", None):
        raise ModelError(
            f"{folder / 'config.json'} names no architecture. Add one, such as "
            '"architectures": ["LlamaForCausalLM"].'
        )
    refuse_quantised(folder, config)
    return config


@contextmanager
def _progress_bar(name: str, total: int, shown: bool) -> Iterator[Callable[[int], None]]:
    """A bar on stderr over `total` bytes; yields the function that advances it."""
    if not shown:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"Loading {name}", total=total)
        yield lambda size: bar.update(task, advance=size)
