"""What a loaded engine is, as plain data: for callers on another thread or in another process."""

from dataclasses import dataclass
from typing import Any

from yaie.core.config import EngineConfig
from yaie.parts import Part


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Constants of an engine; nothing here changes while it runs.

    model_name: to serve it under. model_folder, model_type: where its tokenizer is read from again, in
        a process that has no engine (`yaie.models.tokenizer.Tokenizer.load`).
    architecture: as config.json calls it. dtype, device: in torch's words, "float32" and "cpu".
    dtype_note: why it is this dtype, or "".
    max_model_len: longest sequence, prompt and output together. pool_tokens: token slots in the KV pool.
    sampling_defaults: fields of SamplingParams that hold for a request which does not give them.
    backend, backend_note: what the kernels are written in, and what to expect of it. decode_note: how
        decode steps are launched, or "".
    parts: whose parts run.
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
    sampling_defaults: dict[str, Any]
    backend: str
    backend_note: str
    decode_note: str
    parts: tuple[Part, ...]
