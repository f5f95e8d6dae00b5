"""Compiles a Triton lab's kernels for a GPU, on a machine without one; `kit/compiled.py` starts it.

The suites run kernels in Triton's interpreter, which is Python with NumPy: a `break`, a list or a
variable that changes its type pass there. Whether a kernel is interpreted or compiled is decided where
it is decorated, so this is a process of its own, without TRITON_INTERPRET.

The suite's `gpu_launches.py` calls the part as an engine does. Its launches are compiled and not run:
types, constants and warps are those that the part's host code chooses. They are compiled for sm_90 to
TTIR, the first form that Triton brings a kernel into: by then it has judged every line of the source.
The stages behind it (layouts, LLVM, PTX) take up to ten times as long and refuse what no line shows,
such as too much shared memory; tile sizes are given in these labs.

For each launch a line of JSON goes to the order's `fd`: a `Launch`.
"""

import ast
import importlib
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from grader.places import innermost, spans_in_python
from grader.regions import find_regions
from grader.submission import STUB, Submission, load, told
from grader.triton_words import explain
from grader.worker import Order, limit
from yaie.curriculum.manifest import ROOT, load_curriculum

SM_90 = ("cuda", 90, 32)
"""H100 and H200, which the reference is tuned for; warps of 32 threads."""
STDERR = 2
"""A file, in which MLIR says what is wrong where Triton says only that something is."""
DIAGNOSTIC = re.compile(
    r"^(?P<file>/.+?\.py):(?P<line>\d+):\d+: error: (?P<what>.*)$", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Launch:
    """What came of compiling one launch.

    task: whose call launched it. kernel: "" if none was reached. blame: the task whose code does not
    compile, "" if all does. problem, why, file, line, function: of that. unknown: why it is not known
    whether it compiles. is_begun: it is being compiled; the next line says how it went.
    """

    task: str
    kernel: str = ""
    blame: str = ""
    problem: str = ""
    why: str = ""
    file: str = ""
    line: int = 0
    function: str = ""
    unknown: str = ""
    is_begun: bool = False


@dataclass(frozen=True, slots=True)
class _Frame:
    """A function that an error came through. task: whose it is; "" of given code, None of a helper that
    the reference does not have."""

    file: str
    line: int
    function: str
    task: str | None


def main() -> None:
    order = Order(**json.loads(sys.argv[1]))
    lab = load_curriculum()[order.lab]
    submission = Submission(lab, Path(order.folder), Path(order.shown_from))
    limit(order)

    def emit(launch: Launch) -> None:
        os.write(order.fd, json.dumps(asdict(launch)).encode() + b"\n")

    compiler = _Compiler(submission, emit)
    compiler.take_over()
    part = load(submission)
    launches = importlib.import_module(f"grader.suites.{lab.key}.gpu_launches").LAUNCHES
    for task in order.tasks:
        if task in launches:  # others are not written in Triton
            compiler.run(task, part, launches[task])
    os._exit(0)  # threads and exit handlers of the part have no say in how this ends


class _Compiler:
    """Stands where Triton would compile a launch and run it."""

    def __init__(self, submission: Submission, emit: Callable[[Launch], None]) -> None:
        self._submission = submission
        self._emit = emit
        self._task = ""
        self._owners = owners(submission)

    def take_over(self) -> None:
        """Ask no driver for a GPU, launch no kernel. Raises what Triton raises if it cannot compile."""
        from triton import compiler
        from triton.runtime import driver
        from triton.runtime.jit import KernelInterface

        driver.set_active(_NoGPU())
        compiler.compile = to_ttir
        _probe()

        def launch_on(kernel: Any, grid: Any) -> Callable[..., None]:
            return lambda *args, **kwargs: self.compile(kernel, grid, args, kwargs)

        KernelInterface.__getitem__ = launch_on

    def run(self, task: str, part: ModuleType, calls: Callable[[ModuleType], None]) -> None:
        """Make the calls of a task, up to the first that its host code cannot make."""
        self._task = task
        try:
            calls(part)
        except _Refused:
            pass
        except Exception as error:  # noqa: BLE001, a part may raise anything
            stub = STUB.match(str(error)) if isinstance(error, NotImplementedError) else None
            why = (
                f"it waits for task {stub['task']}"
                if stub
                else f"its call ended with {told(error)}"
            )
            self._emit(Launch(task, unknown=why))

    def compile(self, kernel: Any, grid: Any, args: Any, kwargs: Any) -> None:
        name = _innermost_function(kernel).__name__
        launch = Launch(self._task, name)
        self._emit(replace(launch, blame=self._task, is_begun=True))
        began = os.fstat(STDERR).st_size
        try:
            kernel.warmup(*args, grid=grid, **kwargs)
        except Exception as error:  # noqa: BLE001, the compiler raises what it likes
            said = os.pread(STDERR, 65_536, began).decode("utf-8", "replace")
            self._emit(self._judge(launch, error, said))
            raise _Refused from None
        self._emit(launch)

    def _judge(self, launch: Launch, error: BaseException, said: str) -> Launch:
        """Whose the mistake is, and what it is."""
        complaints = list(_complaints(error))
        innermost_error = complaints[-1].__cause__ or error if complaints else error
        node, message = (
            (complaints[-1].node, complaints[-1].error_message) if complaints else (None, "")
        )
        if stub := _stub_in(node):
            return replace(launch, unknown=f"it waits for task {stub}")
        in_kernel = self._kernel_frames(complaints)
        if not complaints and (found := DIAGNOSTIC.search(said)):
            in_kernel.append(self._frame(found["file"], int(found["line"])))
            message = found["what"]
        frames = [*self._host_frames(), *in_kernel]
        shown = next((frame for frame in reversed(frames) if frame.task != ""), frames[-1])
        blame = next((frame.task for frame in reversed(frames) if frame.task), self._task)
        sentence, why = explain(node, message or _plain(innermost_error), in_kernel=bool(in_kernel))
        problem = (
            f"{launch.kernel} runs in the interpreter but does not compile for a GPU: {sentence}"
        )
        launch = replace(launch, blame=blame, problem=problem, why=why)
        return replace(launch, file=shown.file, line=shown.line, function=shown.function)

    def _host_frames(self) -> list[_Frame]:
        """The lines of the part that led to this launch, outermost first."""
        return [
            self._frame(frame.filename, frame.lineno or 0)
            for frame in traceback.extract_stack()
            if self._submission.owns(frame.filename)
        ]

    def _kernel_frames(self, complaints: list[Any]) -> list[_Frame]:
        """The lines of the part's kernels that the compiler was at, outermost first."""
        from triton.runtime.jit import get_jit_fn_file_line

        sources = {function.src: function for function in _jit_functions(self._submission)}
        frames = []
        for complaint in complaints:
            if function := sources.get(complaint.src):  # those of tl.sum and its like are not ours
                file, begin = get_jit_fn_file_line(function)
                frames.append(self._frame(file, begin - 1 + getattr(complaint.node, "lineno", 1)))
        return frames

    def _frame(self, file: str, line: int) -> _Frame:
        name = innermost(spans_in_python(Path(file).read_text("utf-8")), line)
        return _Frame(file, line, name, self._owners.get((Path(file).name, name)))


def _probe() -> None:
    """Whether this Triton compiles as these lines expect, before any part is read."""
    import torch

    from grader.triton_probe import copy_kernel

    tensor = torch.zeros(16)
    copy_kernel.warmup(tensor, tensor, 16, BLOCK=16, grid=(1,))


class _Refused(Exception):
    """A launch that does not compile: the host code behind it has nothing to work with."""


class _NoGPU:
    """What Triton asks of a driver before it compiles."""

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget(*SM_90)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def to_ttir(source: Any, target: Any, options: dict[str, Any], **more: Any) -> object:
    """`triton.compiler.compile`, as far as TTIR, and without its cache."""
    from triton._C.libtriton import ir
    from triton.compiler import make_backend

    backend = make_backend(target)
    parsed = backend.parse_options(dict(options))
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    codegen, modules = backend.get_codegen_implementation(parsed), backend.get_module_map()
    module = source.make_ir(target, parsed, codegen, modules, context)
    stages: dict[str, Any] = {}
    backend.add_stages(stages, parsed, source.language)
    stages["ttir"](module, {})
    source.hash()  # looks at every function and global that the kernel uses, and refuses some
    return module


def owners(submission: Submission) -> dict[tuple[str, str], str]:
    """(file, function) -> the task that writes in it, "" if it is given whole. As in the reference: no
    function of a kernel lab belongs to two tasks."""
    found: dict[tuple[str, str], str] = {}
    for path in sorted((ROOT / "solutions" / submission.lab.key).glob("*.py")):
        source = path.read_text("utf-8")
        spans = spans_in_python(source)
        found |= {(path.name, name): "" for _, _, name in spans}
        for region in find_regions(source.splitlines(), path):
            found[path.name, innermost(spans, region.begin + 1)] = region.task
    return found


def _stub_in(node: Any) -> str:
    """The task whose stub the compiler has met: a kernel cannot raise. "" if it is something else."""
    if not isinstance(node, ast.Raise):
        return ""
    texts = (str(n.value) for n in ast.walk(node) if isinstance(n, ast.Constant))
    found = next(filter(None, map(STUB.match, texts)), None)
    return found["task"] if found else ""


def _complaints(error: BaseException | None) -> Iterator[Any]:
    """The compiler's errors, from the kernel to the innermost function; each wraps the next."""
    from triton.compiler.errors import CompilationError

    while isinstance(error, CompilationError):
        yield error
        error = error.__cause__


def _plain(error: BaseException) -> str:
    """What is no CompilationError: type and message, without quotes around a KeyError's."""
    return str(error.args[0]) if isinstance(error, KeyError) and error.args else told(error)


def _jit_functions(submission: Submission) -> Iterator[Any]:
    from triton.runtime.jit import JITFunction

    package = f"labs.{submission.lab.key}"
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(f"{package}."):
            inner = map(_innermost_function, vars(module).values())
            yield from (function for function in inner if isinstance(function, JITFunction))


def _innermost_function(value: Any) -> Any:
    """What `triton.autotune` and `triton.heuristics` have been wrapped around."""
    while hasattr(value, "fn") and hasattr(value.fn, "fn"):
        value = value.fn
    return value


if __name__ == "__main__":
    main()
