"""Which backend runs, and from which labs it takes each operation.

    role         in PyTorch         in Triton                 in CUDA C++
    ops          transformer_ops    triton_ops                cuda_ops
    attention    radix_attention    triton_flash_attention,   cuda_flash_attention,
                                    triton_paged_attention    cuda_paged_attention
    memory       (paged_cache)      (triton_ops stores)       cuda_memory_ops
    sampler      sampler            triton_sampling           triton_sampling on a GPU, else sampler

Backend `flashinfer` is Triton's, with attention of that library, which has no lab.

Backend `cpu` is PyTorch's, with attention in C++ and, unless lab 2 is the learner's, norms. It is what
`auto` takes on a CPU, unless something stands against it (`_why_pytorch`).

The part in PyTorch goes before a role's kernels where --mine names it. With backend `auto` it also does
where it is the learner's and none of the kernels is: if you have passed lab 1, you see your own sampler
draw, GPU or not. With `auto` attention is PyTorch's too if a model's heads are too wide for the kernels.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from yaie.backends import cuda, flashinfer, triton  # noqa: F401  (importing registers them)
from yaie.backends.base import PLAIN, Backend, Roles, name_of, registered_backends
from yaie.backends.cpu import build
from yaie.backends.cpu.backend import CpuBackend
from yaie.backends.cpu.library import library
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError, KernelError
from yaie.parts import LABS, PLAIN_LABS, YOURS, load_parts, named_labs, whose

SLOWER = "attention in PyTorch, which is slower, because {}"


@dataclass(frozen=True, slots=True)
class Choice:
    """What was decided. labs: all that the engine runs on, in the order of the curriculum."""

    kind: type[Backend]
    roles: Roles
    labs: tuple[str, ...]
    note: str


def choose_backend(
    config: EngineConfig,
    device: torch.device,
    head_dims: Sequence[int] = (),
    *,
    packed: bool = False,
    stateful: bool = False,
) -> Backend:
    """The backend for a device and a model with heads of these sizes, on parts that are loaded here.
    packed: whether the model's weights are stored in few bits. stateful: whether layers keep a state.

    With `auto`, PyTorch's where C++ does not compile or cannot be loaded.
    Raises ConfigError, which names the fix, for one that cannot run, and PartError for a learner's part
    that is unfinished or cannot be imported.
    """
    model = {"packed": packed, "stateful": stateful}
    chosen = decide(config, device, head_dims, **model)
    if config.backend == "auto" and chosen.kind is CpuBackend:
        try:
            library()
        except (KernelError, OSError) as error:
            plain = decide(replace(config, backend="torch"), device, head_dims, **model)
            chosen = replace(plain, note=SLOWER.format(str(error).rstrip(".")))
    return chosen.kind(load_parts(config.mine, labs=chosen.labs), chosen.roles, chosen.note)


def decide(
    config: EngineConfig,
    device: torch.device,
    head_dims: Sequence[int] = (),
    *,
    packed: bool = False,
    stateful: bool = False,
) -> Choice:
    """What `choose_backend` makes, without importing a part. Raises ConfigError."""
    name, note = _name(config, device)
    kind = registered_backends()[name]
    note = note or kind.check(device)
    if config.deterministic and kind is triton.TritonBackend:
        from yaie.backends.invariant import InvariantBackend  # which needs Triton

        kind = InvariantBackend
    kernels = kind.kernels_on(device)
    roles = {
        role: PLAIN[role] if _plain_wins(config, kind.yields_to[role], labs) else labs
        for role, labs in kernels.items()
    }
    if roles["attention"] != PLAIN["attention"] and not _fits(config, kind, kernels, head_dims):
        roles["attention"] = PLAIN["attention"]
    used = kind.in_use(roles)
    if kind is CpuBackend and used["attention"]:
        note = ""  # which tells of attention
    labs = _labs(
        used,
        tensor_parallel=config.num_ranks > 1,
        quantization=packed or config.kv_dtype == "int8",
        state_cache=stateful,
    )
    _refuse_unused(config, kind.name, labs)
    return Choice(kind, used, labs, note)


def _name(config: EngineConfig, device: torch.device) -> tuple[str, str]:
    """Of the backend, and a note on it, or ""."""
    if config.kv_dtype == "int8":
        return _for_int8_pool(config)
    if config.backend != "auto":
        return config.backend, ""
    if device.type == "cuda":
        return ("triton" if triton.has_triton() else "torch"), ""
    why = _why_pytorch(config)
    return ("torch" if why else "cpu"), why


def _for_int8_pool(config: EngineConfig) -> tuple[str, str]:
    """Kernels read a pool as it lies, in the model's dtype; lab 5 asks the pool for numbers."""
    if config.backend not in ("auto", "torch"):
        raise ConfigError(
            f"kv_dtype 'int8' does not go with backend {config.backend!r}, whose kernels read keys and "
            "values of the model's dtype: leave the backend to auto, or take torch",
            param="kv_dtype",
        )
    return "torch", "attention in PyTorch, which widens keys and values from int8"


def _why_pytorch(config: EngineConfig) -> str:
    """Why `auto` leaves attention on a CPU to PyTorch, as a note; "" if it does not."""
    if config.deterministic:
        return "attention in PyTorch, as --deterministic needs it"
    for lab in CpuBackend.yields_to["attention"]:
        if whose(lab, config.mine)[0] == YOURS:
            return f"attention in PyTorch, where your {lab} runs"
    if config.dtype not in ("auto", *map(name_of, CpuBackend.dtypes)):
        return SLOWER.format(f"attention in C++ does not compute in {config.dtype}")
    why = build.missing()
    return SLOWER.format(why) if why else ""


def _plain_wins(config: EngineConfig, plain: tuple[str, ...], kernels: tuple[str, ...]) -> bool:
    named = named_labs(config.mine)
    if not plain:
        return False
    if any(lab in named for lab in plain):
        return True
    if config.backend != "auto" or config.mine != "auto":
        return False
    return _any_yours(plain) and not _any_yours(kernels)


def _any_yours(labs: tuple[str, ...]) -> bool:
    return any(whose(lab, "auto")[0] == YOURS for lab in labs)


def _fits(
    config: EngineConfig, kind: type[Backend], kernels: Roles, head_dims: Sequence[int]
) -> bool:
    """Whether the attention kernels take a model's heads. Raises ConfigError if they do not, and backend
    or kernels were asked for by name."""
    refused = [size for size in head_dims if not kind.takes_heads_of(size)]
    if not refused:
        return True
    named = sorted(named_labs(config.mine).intersection(kernels["attention"]))
    if config.backend == "auto" and not named:
        return False
    fix = f"leave {named[0]} out of mine" if named else "leave the backend to auto"
    raise ConfigError(
        f"this model's heads have {max(refused)} dimensions and the attention kernels of backend "
        f"{kind.name!r} take {kind.heads_taken()}: {fix}",
        param="mine" if named else "backend",
    )


def _labs(roles: Roles, **needed: bool) -> tuple[str, ...]:
    """All that the engine runs on: those of the roles, and those that no role replaces. needed: whether
    there is work for lab 19 (it multiplies, or keeps the pool), lab 20 and lab 22."""
    replaced = {lab for labs in PLAIN.values() for lab in labs}
    replaced |= {lab for lab, is_needed in needed.items() if not is_needed}
    used = set(PLAIN_LABS) - replaced
    used |= {lab for labs in roles.values() for lab in labs}
    if "radix_attention" in used:
        used.add("transformer_ops")
    return tuple(lab for lab in LABS if lab in used)


def _refuse_unused(config: EngineConfig, name: str, labs: tuple[str, ...]) -> None:
    unused = sorted(named_labs(config.mine) - set(labs), key=LABS.index)
    if not unused:
        return
    lab, fix = unused[0], "leave it out"
    if lab == "tensor_parallel":
        raise ConfigError(
            "mine names tensor_parallel, and the model is on one rank: add --tensor-parallel 2",
            param="mine",
        )
    if lab == "state_cache":
        raise ConfigError(
            "mine names state_cache, and no layer of the model keeps a state: take a hybrid model",
            param="mine",
        )
    for other, kind in registered_backends().items():
        if other != name and any(lab in one for one in kind.kernels.values()):
            fix = f"add backend {other!r} (--backend {other})"
            break
    raise ConfigError(
        f"mine names {lab}, which nothing runs on with backend {name!r}: {fix}", param="mine"
    )
