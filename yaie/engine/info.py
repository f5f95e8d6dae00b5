"""What a loaded engine is, as plain data: for callers on another thread or in another process."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from yaie.core.config import EngineConfig
from yaie.parts import Part

if TYPE_CHECKING:
    from yaie.backends import Backend
    from yaie.models.loader import LoadedModel


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """Constants of an engine; nothing here changes while it runs.

    model_name: to serve it under. model_folder, model_type: where its tokenizer is read from again, in
        a process that has no engine (`yaie.models.tokenizer.Tokenizer.load`).
    architecture: as config.json calls it. dtype, device: in torch's words, "float32" and "cpu".
    dtype_note: why it is this dtype, or "".
    max_model_len: longest sequence, prompt and output together. pool_tokens: token slots in the KV pool.
    text_tokens: the longest text that the pool can serve. full_texts: how many of `max_model_len` tokens
        it can serve at once.
    sampling_defaults: fields of SamplingParams that hold for a request which does not give them.
    backend, backend_note: what the kernels are written in, and what to expect of it. decode_note: how
        decode steps are launched, or "".
    parts: whose parts run. weight_bytes: of rank 0. left_out: what the model takes beside text and is
        not served with, such as "images"; "" for a model of text.
    states: what layers keep of requests beside keys and values, in words; "" if nothing. windows: what
        becomes of blocks behind a window, if a layer has one.
    """

    config: EngineConfig
    model_name: str
    model_folder: str
    model_type: str
    architecture: str
    dtype: str
    dtype_note: str
    device: str
    vocab_size: int
    num_parameters: int
    weight_bytes: int
    max_model_len: int
    pool_tokens: int
    text_tokens: int
    full_texts: int
    sampling_defaults: dict[str, Any]
    backend: str
    backend_note: str
    decode_note: str
    parts: tuple[Part, ...]
    left_out: str = ""
    states: str = ""
    windows: str = ""

    @property
    def limits(self) -> str:
        """What the model is served without, in words; "" for a model of text."""
        if not self.left_out:
            return ""
        return f"text only: it takes {self.left_out} too, which are left out"

    @property
    def ranks(self) -> str:
        """Over which ranks the model is split, in words; "" if it is not."""
        config = self.config
        if config.num_ranks == 1:
            return ""
        shape = f"{config.tensor_parallel} to a layer, {config.pipeline_parallel} stages"
        if config.pipeline_parallel == 1:
            shape = "which split every layer"
        elif config.tensor_parallel == 1:
            shape = "one stage each"
        uses = "lab 20's ring" if config.has_ring(self.device) else "the library's collectives"
        return f"{config.num_ranks} ranks, {shape}, over {uses}"

    @classmethod
    def of(
        cls,
        config: EngineConfig,
        model: "LoadedModel",
        backend: "Backend",
        *,
        max_model_len: int,
        pool_tokens: int,
        text_tokens: int,
        full_texts: int,
        decode_note: str,
        states: str = "",
        windows: str = "",
    ) -> "EngineInfo":
        """Of an engine made of these."""
        return cls(
            config=config,
            model_name=model.name,
            model_folder=str(model.folder),
            model_type=model.model_type,
            architecture=model.architecture,
            dtype=str(model.dtype).removeprefix("torch."),
            dtype_note=model.dtype_note,
            device=model.device.type,
            vocab_size=model.adapter.vocab_size,
            num_parameters=model.num_parameters,
            weight_bytes=model.weight_bytes,
            max_model_len=max_model_len,
            pool_tokens=pool_tokens,
            text_tokens=text_tokens,
            full_texts=full_texts,
            sampling_defaults=model.sampling_defaults,
            backend=backend.name,
            backend_note=backend.note,
            decode_note=decode_note,
            parts=tuple(backend.parts.table()),
            left_out=model.left_out,
            states=states,
            windows=windows,
        )
