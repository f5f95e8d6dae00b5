"""`Backend`: what the operations of a step are computed by, and the register of those there are."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from yaie.core.batch import KVLayerSpec
from yaie.core.contracts import BatchAttention, KVPool, Sampler, TransformerOps
from yaie.core.errors import ConfigError
from yaie.core.gemm import BlockGemm, InvariantGemm, PackedGemm
from yaie.core.quantized import Int4Weight
from yaie.parts import Parts

Roles = Mapping[str, tuple[str, ...]]
"""The labs that fill each role: ops, attention, memory, sampler."""

PLAIN: Roles = {
    "ops": ("transformer_ops",),
    "attention": ("radix_attention",),
    "memory": (),
    "sampler": ("sampler",),
}
"""In PyTorch. Memory has none: the pool of lab 3 belongs to `paged_cache`, which is always in use."""

FUSED_STEP = 16
"""Inputs of a group that lab 19's kernel takes at a time."""
FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def name_of(dtype: torch.dtype) -> str:
    """As `EngineConfig.dtype` calls it."""
    return str(dtype).removeprefix("torch.")


class Backend(ABC):
    """What computes a step, made of the parts in use. The second extension point beside `ModelAdapter`.

    To add one, write a class in a module of its own, register it, import the module in `choice.py`, and
    add its name to `EngineConfig.backend`:

        @register_backend("mylib")
        class MyBackend(TorchBackend):
            kernels = {**PLAIN, "attention": ()}      # no lab: the library attends
            largest_head_dim = 256

            def make_attention(self, pool):
                return MyAttention(pool)

    Engine and worker call the factories and read the facts, and never ask for the name.

    name: as `EngineConfig.backend` gives it. note: what to expect of it here, or "".
    parts: of every lab that the engine runs on. roles: which of them fill which role.
    invariant_gemm: for the output head, if a token comes out the same to the last bit whatever is
        computed beside it; None if it may not.
    """

    name: ClassVar[str]
    kernels: ClassVar[Roles] = PLAIN
    """The labs that fill its roles where no part in PyTorch is preferred (see `choice`)."""
    yields_to: ClassVar[Roles] = PLAIN
    """The labs in PyTorch that go before its kernels in a role where they are the learner's."""
    dtypes: ClassVar[tuple[torch.dtype, ...]] = FLOATS
    """Of the activations and the KV pool."""
    largest_head_dim: ClassVar[int | None] = None
    """Dimensions of a head that its attention takes; None for any."""

    def __init__(self, parts: Parts, roles: Roles, note: str = "") -> None:
        self.parts = parts
        self.roles = roles
        self.note = note
        self.invariant_gemm: InvariantGemm | None = None

    @classmethod
    def check(cls, device: torch.device) -> str:
        """What to expect of it on a device, in words; "" if nothing is special.

        Raises ConfigError, which names the fix, if it cannot run there.
        """
        return ""

    @classmethod
    def kernels_on(cls, device: torch.device) -> Roles:
        """`kernels`, where they depend on the device."""
        return cls.kernels

    @classmethod
    def in_use(cls, roles: Roles) -> Roles:
        """These roles without labs that nothing would call."""
        return roles

    def has_kernels(self, role: str) -> bool:
        """Whether a role is filled by something else than a lab in PyTorch."""
        return self.roles[role] != PLAIN[role]

    @property
    def may_be_captured(self) -> bool:
        """Whether a step of single tokens may be padded, and captured in a CUDA graph: what it launches
        depends on shapes and on bounds, and nothing waits for the device."""
        return False

    @property
    def why_not_captured(self) -> str:
        """Why it may not be, where it may not: what follows "with this backend,"."""
        return "PyTorch computes attention or ops"

    def prepare(self, device: torch.device) -> None:  # noqa: B027 (most have nothing to compile)
        """Compile what the first request would otherwise wait for. Raises KernelError."""

    @abstractmethod
    def make_ops(self) -> TransformerOps:
        """What adapters compute with."""

    @abstractmethod
    def make_pool(
        self,
        layers: Sequence[KVLayerSpec],
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        num_host_blocks: int,
    ) -> KVPool:
        """The memory of keys and values. Raises ConfigError for a dtype or a head that it does not take:
        config.json is only a promise of what a loaded model has."""

    def make_int8_pool(
        self,
        layers: Sequence[KVLayerSpec],
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        num_host_blocks: int,
    ) -> KVPool:
        """The same in INT8, by lab 19. dtype: of the model."""
        self.refuse_misfits(layers, dtype)
        pool: KVPool = self.parts["quantization"].Int8KVPool(
            layers, num_blocks, block_size, dtype, device, num_host_blocks
        )
        return pool

    @abstractmethod
    def make_attention(self, pool: KVPool) -> BatchAttention:
        """What writes to the pool and attends."""

    @abstractmethod
    def make_sampler(self) -> Sampler:
        """What draws the tokens."""

    def make_split_sampler(
        self, first: int, gathered: Callable[[Tensor], Tensor]
    ) -> Sampler | None:
        """A sampler for rows without filters and penalties that needs only this rank's logits; all ranks
        call it together. None if rows are to be sampled from all logits.

        first: this rank's first token. gathered: from a tensor to those of all ranks, [ranks, ...].
        """
        return None

    def make_packed_gemm(self, device: torch.device) -> PackedGemm:
        """What multiplies weights that are stored in few bits: lab 19's, in Triton on a GPU."""
        part = self.parts["quantization"]
        int8, int4 = part.Int8(), part.Int4()
        if device.type != "cuda" or find_spec("triton") is None:
            return PackedGemm(int8.product, int4.product)
        fused = part.fused_int4()

        def product(x: Tensor, weight: Int4Weight) -> Tensor:
            takes = weight.group_size % FUSED_STEP == 0
            y: Tensor = (fused if takes else int4).product(x, weight)
            return y

        return PackedGemm(int8.product, product)

    def make_block_gemm(self, device: torch.device) -> BlockGemm | None:
        """What multiplies weights in the blocks of a GGUF or of MXFP4; None if they are unpacked."""
        return None

    def refuse_misfits(self, layers: Sequence[KVLayerSpec], dtype: torch.dtype) -> None:
        """Raise ConfigError for what `make_pool` cannot serve."""
        if dtype not in self.dtypes:
            known = ", ".join(map(name_of, self.dtypes))
            raise ConfigError(
                f"backend {self.name!r} does not compute in {name_of(dtype)}: "
                f"choose a dtype from {known}",
                param="dtype",
            )
        sizes = [layer.head_dim for layer in layers if not self.takes_heads_of(layer.head_dim)]
        if self.has_kernels("attention") and sizes:
            raise ConfigError(
                f"this model's heads have {max(sizes)} dimensions, more than its config.json says, and "
                f"the attention kernels of backend {self.name!r} take {self.heads_taken()}: start it "
                "with --backend torch",
                param="backend",
            )

    @classmethod
    def takes_heads_of(cls, dimensions: int) -> bool:
        """Whether its attention kernels take heads of this size."""
        return cls.largest_head_dim is None or dimensions <= cls.largest_head_dim

    @classmethod
    def heads_taken(cls) -> str:
        """Which those are, in words, of a backend that does not take all."""
        return f"at most {cls.largest_head_dim}"


_REGISTRY: dict[str, type[Backend]] = {}

Kind = TypeVar("Kind", bound=type[Backend])


def register_backend(name: str) -> Callable[[Kind], Kind]:
    """Class decorator: this is the backend that `EngineConfig.backend` calls `name`."""

    def add(kind: Kind) -> Kind:
        kind.name = name
        _REGISTRY[name] = kind
        return kind

    return add


def registered_backends() -> dict[str, type[Backend]]:
    """Every backend by its name."""
    return dict(_REGISTRY)
