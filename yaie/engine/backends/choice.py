"""Which backend runs, and from which labs it takes each operation.

    role         in PyTorch         in Triton                 in CUDA C++
    ops          transformer_ops    triton_ops                cuda_ops
    attention    radix_attention    triton_flash_attention,   cuda_flash_attention,
                                    triton_paged_attention    cuda_paged_attention
    memory       (paged_cache)      (triton_ops stores)       cuda_memory_ops
    sampler      sampler            triton_sampling           triton_sampling on a GPU, else sampler

A role's kernels give way to the part in PyTorch where --mine names that one. With backend `auto` they
also do where the PyTorch part is a learner's and none of the kernels is: who has passed lab 1 sees the
own sampler draw, GPU or not.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

import torch

from yaie.core.config import EngineConfig
from yaie.core.cuda.nvcc import find_host_compiler
from yaie.core.errors import ConfigError
from yaie.parts import LABS, PLAIN_LABS, YOURS, named_labs, whose

Roles = Mapping[str, tuple[str, ...]]

PLAIN: Roles = {
    "ops": ("transformer_ops",),
    "attention": ("radix_attention",),
    "memory": (),
    "sampler": ("sampler",),
}
TRITON: Roles = {
    "ops": ("triton_ops",),
    "attention": ("triton_flash_attention", "triton_paged_attention"),
    "memory": ("triton_ops",),
    "sampler": ("triton_sampling",),
}
CUDA: Roles = {
    "ops": ("cuda_ops",),
    "attention": ("cuda_flash_attention", "cuda_paged_attention"),
    "memory": ("cuda_memory_ops",),
    "sampler": ("triton_sampling",),
}
INTERPRETER = "TRITON_INTERPRET"


@dataclass(frozen=True, slots=True)
class Backend:
    """What was chosen. name: torch, triton or cuda. roles: the labs that fill each role.
    labs: all that the engine runs on, in the order of the curriculum. note: what to expect of it."""

    name: str
    roles: Roles
    labs: tuple[str, ...]
    note: str = ""

    def has_kernels(self, role: str) -> bool:
        """Whether a role is filled by labs in Triton or CUDA C++."""
        return self.roles[role] != PLAIN[role]


def choose_backend(config: EngineConfig, device: torch.device) -> Backend:
    """The backend for a device. Raises ConfigError, which names the fix, for one that cannot run."""
    name = _name(config, device)
    note = _check(name, device)
    roles = {
        role: PLAIN[role] if _plain_wins(config, role, kernels) else kernels
        for role, kernels in _kernels(name, device).items()
    }
    backend = _assembled(name, roles, note)
    _refuse_unused(config, name, backend.labs)
    return backend


def with_plain_attention(backend: Backend) -> Backend:
    """The same with lab 5's attention, for a model whose heads are too wide for the kernels."""
    roles = {**backend.roles, "attention": PLAIN["attention"]}
    return _assembled(backend.name, roles, backend.note)


def _assembled(name: str, roles: dict[str, tuple[str, ...]], note: str) -> Backend:
    if roles["attention"] == PLAIN["attention"] and name == "triton":
        roles["memory"] = ()  # what it stores with is lab 3's
    return Backend(name, roles, _labs(roles), note)


def _labs(roles: Roles) -> tuple[str, ...]:
    """All that the engine runs on: those of the roles, and those that no role replaces."""
    replaced = {lab for labs in PLAIN.values() for lab in labs}
    used = set(PLAIN_LABS) - replaced
    used |= {lab for labs in roles.values() for lab in labs}
    if "radix_attention" in used:
        used.add("transformer_ops")
    return tuple(lab for lab in LABS if lab in used)


def interpreted() -> bool:
    """Whether Triton was told to run its kernels in Python."""
    return os.environ.get(INTERPRETER) == "1"


def _name(config: EngineConfig, device: torch.device) -> str:
    if config.backend != "auto":
        return config.backend
    return "triton" if device.type == "cuda" and _has_triton() else "torch"


def _has_triton() -> bool:
    try:
        import_module("triton")
    except (ImportError, OSError):
        return False
    return True


def _check(name: str, device: torch.device) -> str:
    """What to expect of a backend on a device, in words; "" if nothing is special."""
    if name == "torch":
        return ""
    if name == "triton":
        return _check_triton(device)
    if device.type == "cpu":
        return _check_cuda_on_cpu()
    return ""


def _check_triton(device: torch.device) -> str:
    if not _has_triton():
        raise ConfigError(
            "backend 'triton' needs Triton: pip install 'yaie[gpu]' (Linux)", param="backend"
        )
    if device.type == "cpu" and not interpreted():
        raise ConfigError(
            "backend 'triton' needs a GPU. On a CPU its kernels run in Triton's interpreter, slowly: "
            f"set {INTERPRETER}=1 in the environment, or leave the backend to auto.",
            param="backend",
        )
    return "in Triton's interpreter, slowly" if interpreted() else ""


def _check_cuda_on_cpu() -> str:
    compiler = find_host_compiler()
    if compiler is None:
        raise ConfigError(
            "backend 'cuda' runs on a CPU once a C++ compiler compiles its kernels, and there is none: "
            "install g++ or clang++, or leave the backend to auto.",
            param="backend",
        )
    return "CUDA C++ on the CPU, every access checked, very slowly"


def _kernels(name: str, device: torch.device) -> Roles:
    if name == "torch":
        return PLAIN
    if name == "triton":
        return TRITON
    # Tokens of lab 1 and lab 12 are drawn alike; Triton's interpreter would only make it slower.
    sampler = CUDA["sampler"] if device.type == "cuda" and _has_triton() else PLAIN["sampler"]
    return {**CUDA, "sampler": sampler}


def _plain_wins(config: EngineConfig, role: str, kernels: tuple[str, ...]) -> bool:
    named = named_labs(config.mine)
    if not PLAIN[role]:
        return False
    if any(lab in named for lab in PLAIN[role]):
        return True
    if config.backend != "auto" or config.mine != "auto":
        return False
    return _any_yours(PLAIN[role]) and not _any_yours(kernels)


def _any_yours(labs: tuple[str, ...]) -> bool:
    return any(whose(lab, "auto")[0] == YOURS for lab in labs)


def _refuse_unused(config: EngineConfig, name: str, labs: tuple[str, ...]) -> None:
    unused = sorted(named_labs(config.mine) - set(labs), key=LABS.index)
    if not unused:
        return
    lab = unused[0]
    for backend, roles in (("triton", TRITON), ("cuda", CUDA)):
        if backend != name and any(lab in kernels for kernels in roles.values()):
            fix = f"add backend {backend!r} (--backend {backend})"
            break
    else:
        fix = "leave it out"
    raise ConfigError(
        f"mine names {lab}, which nothing runs on with backend {name!r}: {fix}", param="mine"
    )
