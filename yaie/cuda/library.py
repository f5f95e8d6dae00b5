"""`CudaLibrary`: the kernels of one lab, compiled when they are first called.

Tensors on a GPU run what nvcc compiled; tensors on a CPU run the same source in the runtime of
`yaie.cuda.on_cpu`, slowly and with every access checked.
"""

import ctypes
import re
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from yaie.core.errors import KernelError
from yaie.cuda.compiler import library_for, open_stubs, sources
from yaie.cuda.nvcc import device_architecture

DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}
Argument = Tensor | torch.dtype | int | float | None

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_API = re.compile(r"\bYAIE_API\s+\w+\s+(?P<name>\w+)\s*\((?P<parameters>[^)]*)\)")

LOST = frozenset({700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 720})
"""CUDA errors after which a process can use its GPU no more (illegal address, failed assertion, ...)."""


class Runner(Protocol):
    """What calls a library's functions on one kind of device."""

    def call(self, name: str, *arguments: Argument) -> None: ...


class CudaLibrary:
    """Every `.cu` file of a folder, as one library of `YAIE_API` functions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runners: dict[torch.device, Runner] = {}

    def call(self, name: str, *arguments: Argument) -> None:
        """Call a function of the library on the current stream.

        A tensor is passed as its address, None as a null pointer, a dtype as its number in yaie.cuh, an
        int as int64_t, a float as float. All tensors lie on one device, but for pinned ones of the host
        among those of a GPU. Raises KernelError, and NotImplementedError for a stub.
        """
        device = _device_of(name, arguments)
        runner = self._runners.get(device)
        if runner is None:
            runner = self._runners[device] = self._make_runner(device)
        runner.call(name, *arguments)

    def _make_runner(self, device: torch.device) -> Runner:
        if device.type == "cuda":
            return OnGpu(self.folder, device)
        if device.type != "cpu":
            raise KernelError(f"CUDA kernels run on tensors of a GPU or a CPU, not of {device}")
        from yaie.cuda.on_cpu import OnCpu

        return OnCpu(self.folder)


class OnGpu:
    """A library on one GPU, through ctypes."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        """Raises KernelError if it cannot be had, NotImplementedError for what is unfinished."""
        # On a GPU a stub could only stop the whole process; on the CPU each one raises for itself.
        if stubs := open_stubs(folder):
            raise NotImplementedError(stubs[0])
        self._lab = folder.name
        self._device = device
        self._signatures = signatures(folder)
        path = library_for(folder, device_architecture(device.index))
        try:
            self._library = ctypes.CDLL(str(path))
        except OSError as error:
            raise KernelError(f"{path} cannot be loaded: {error}; delete it") from None
        self._library.yaie_error_string.restype = ctypes.c_char_p
        self._functions: dict[str, Any] = {}

    def call(self, name: str, *arguments: Argument) -> None:
        """See `CudaLibrary.call`."""
        function = self._functions.get(name)
        if function is None:
            function = self._functions[name] = self._find(name)
        if len(arguments) + 1 != len(function.argtypes):
            raise KernelError(
                f"{self._lab}.{name} takes {len(function.argtypes) - 1} arguments and the stream, and "
                f"was called with {len(arguments)}"
            )
        index = self._device.index
        values = [_as_number(name, value, index) for value in arguments]
        if torch.cuda.current_device() == index:
            code = function(*values, torch.cuda.current_stream().cuda_stream)
        else:
            with torch.cuda.device(index):
                code = function(*values, torch.cuda.current_stream().cuda_stream)
        if code != 0:
            raise KernelError(self._explain(name, code))

    def _find(self, name: str) -> Any:
        types = self._signatures.get(name)
        function = getattr(self._library, name, None)
        if types is None or function is None:
            known = ", ".join(sorted(self._signatures)) or "nothing"
            raise KernelError(f"{self._lab} has no YAIE_API function {name}; it has {known}")
        function.argtypes = [ctypes.c_void_p if "*" in kind or "Stream" in kind
                             else ctypes.c_float if "float" in kind else ctypes.c_int64
                             for kind in types]  # fmt: skip
        return function

    def _explain(self, name: str, code: int) -> str:
        what = self._library.yaie_error_string(code).decode()
        message = f"{self._lab}.{name}: CUDA error {code}, {what}"
        if code not in LOST:
            return message
        return (
            f"{message}. It may come from a kernel before this one, and this process can use the GPU no "
            "more: start again. The same call on CPU tensors checks every access and names the line."
        )


def signatures(folder: Path) -> dict[str, list[str]]:
    """The parameters of each YAIE_API function of a folder's `.cu` files, as they are declared."""
    found = {}
    for file in sources(folder):
        text = _COMMENT.sub("", file.read_text("utf-8", "replace"))
        for function in _API.finditer(text):
            found[function["name"]] = [kind.strip() for kind in function["parameters"].split(",")]
    return found


def _device_of(name: str, arguments: tuple[Argument, ...]) -> torch.device:
    """Where the first tensor of a GPU lies, else the first tensor."""
    on_host = None
    for argument in arguments:
        if isinstance(argument, Tensor):
            if argument.is_cuda:
                return argument.device
            on_host = argument
    if on_host is None:
        raise KernelError(f"{name}: a call needs a tensor to know where to run")
    return on_host.device


def _as_number(name: str, value: Argument, index: int) -> int | float | None:
    """What ctypes makes the argument of. Raises KernelError for a tensor that lies elsewhere."""
    if not isinstance(value, Tensor):
        return DTYPES[value] if isinstance(value, torch.dtype) else value
    if not value.is_cuda:
        if value.numel() > 0 and not value.is_pinned():
            shape = list(value.shape)
            raise KernelError(f"{name}: a tensor {shape} lies on the CPU and is not pinned")
    elif value.get_device() != index:
        raise KernelError(f"{name}: tensors lie on cuda:{index} and on {value.device}")
    return value.data_ptr()
