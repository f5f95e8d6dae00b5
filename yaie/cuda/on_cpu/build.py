"""From a folder of `.cu` files to a library for the CPU, by g++ or clang++.

The files are compiled as C++ against `include/`, with a call before every access to memory
(-fsanitize=thread), at every basic block (-fsanitize-coverage) and wherever C++ would be undefined
(-fsanitize=bounds,...). The libraries of these sanitizers are not linked: `runtime/` answers the calls.

Two constructs are rewritten in the text first, line by line: `extern __shared__ T name[];` becomes a
pointer that the runtime gives, and `__noinline__`, which the C++ library uses as a name, an attribute.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from yaie.core.errors import KernelError
from yaie.cuda.bounded import run_bounded
from yaie.cuda.compiler import INCLUDE as COMMON
from yaie.cuda.compiler import SOURCES, cache_folder, draft_in, refuse_full_disk, sources
from yaie.cuda.nvcc import find_host_compiler
from yaie.cuda.on_cpu.symbols import Dynamic, Symbols, read_symbols

HERE = Path(__file__).parent
INCLUDE = HERE / "include"
RUNTIME = HERE / "runtime"
INSTALL = (
    "CUDA on the CPU needs a C++ compiler: install g++ (`apt install g++`, `dnf install gcc-c++`) or "
    "clang++, or set CXX"
)
ONLY_LINUX = (
    "CUDA on the CPU runs on Linux (x86-64 or 64-bit ARM), for the way in which it reads libraries; on "
    "macOS use a Linux container, on Windows WSL"
)
FLAGS = (
    "-x", "c++", "-std=c++17", "-g1", "-fPIC", "-fno-exceptions", "-fvisibility=hidden",
    "-fno-strict-aliasing",  # a float* read as float4*, as everybody does in CUDA
    "-fstack-clash-protection",
    "-fsanitize=thread",
    "-fsanitize=bounds,shift,signed-integer-overflow,integer-divide-by-zero,return,unreachable",
    "-fsanitize-coverage=trace-pc",
    "-fdiagnostics-color=never",
)  # fmt: skip
# -fno-tree-sra: a float4 is loaded as a whole. -fno-tree-sink: a load stays where it is written, before
# the condition that it should have waited for. clang++ takes structs apart unless at -O0, where it
# copies them by memcpy: that is watched too, but says nothing of the alignment that it needs.
FLAGS_OF = {
    "g++": ("-O1", "-fno-tree-sra", "-fno-tree-sink", "-fno-gnu-unique", "-fmax-errors=5"),
    "clang++": ("-O0", "-ferror-limit=5", "-w"),
}
# g++ does not report what `*p = f(x)` stores if f is a call that returns a struct, as __half is one. So
# device functions are inlined, as nvcc does: `__device__` then says so.
INLINED = ("-DYAIE_INLINED=1", "-Wno-attributes")
WRAPPED = ("memcpy", "memmove", "memset", "__assert_fail")
MOST_STATIC_SHARED = 48 * 1024
MOST_ERRORS = 3
TIMEOUT = 300

_ATTRIBUTE = (
    r"(?:__align__\s*\([^)]*\)|alignas\s*\([^)]*\)|__attribute__\s*\(\(.*?\)\)|volatile)\s*"
)
_EXTERN_SHARED = re.compile(
    rf"extern\s+__shared__\s+(?:{_ATTRIBUTE})*(?P<type>[\w:<>,\s*]+?)\s*(?:{_ATTRIBUTE})*"
    r"(?P<name>\b\w+)\s*\[\s*\]\s*;"
)
_ERROR = re.compile(
    r"^(?P<file>[^\s:]+):(?P<line>\d+):(?P<column>\d+): (?:fatal )?error: (?P<what>.*)$"
)
_UNDEFINED = re.compile(r"undefined reference to [`'](?P<name>[^']+)'")


@dataclass(frozen=True, slots=True)
class Built:
    """A library in the cache, and what its symbols mean. objects: what it was linked of."""

    path: Path
    runtime: Path
    symbols: Symbols
    objects: tuple[Path, ...]

    @property
    def files(self) -> list[Path]:
        """All that the cache has of it: in another cache they spare the compiler."""
        return [self.path, self.path.with_suffix(".json"), self.runtime, *self.objects]


def build(folder: Path) -> Built:
    """Compile the `.cu` files of a folder, unless the cache has them.

    Raises KernelError: no compiler, or its first errors with file and line.
    """
    compiler = _compiler()
    runtime = _build_runtime(compiler)
    files = sources(folder)
    headers = [file for file in sorted(folder.iterdir()) if file.suffix in SOURCES[1:]]
    # A compiler takes any bytes in a comment, and gets those of the file.
    texts = {file.name: file.read_text("utf-8", "surrogateescape") for file in (*files, *headers)}
    for name, text in texts.items():
        _refuse_chevrons(name, text)
    flags = _flags(compiler)
    shared = [_version(compiler), *flags, *INLINED, _content(INCLUDE), _content(COMMON)]
    common = _digest(*shared, *(texts[header.name] for header in headers))
    keys = [_digest(common, file.name, texts[file.name]) for file in files]
    objects = [_object(key) for key in keys]
    # The name of the runtime is part of the library: it says what it was linked with.
    path = _folder() / f"{folder.name}-{_digest(runtime.name, *keys)}.so"
    meta = path.with_suffix(".json")
    if not (path.exists() and meta.exists()):
        with draft_in(_folder()) as draft:
            _compile_all(folder.name, draft, texts, [f.name for f in files], keys, compiler)
            target = draft / path.name
            _link(folder.name, target, objects, runtime, compiler)
            symbols = read_symbols(target, dynamic=_dynamic_arrays(texts))
            _refuse_large(symbols)
            draft_meta = draft / meta.name
            draft_meta.write_text(json.dumps(symbols.as_json()))
            draft_meta.replace(meta)
            target.replace(path)
    symbols = Symbols.from_json(json.loads(meta.read_text()), path)
    return Built(path, runtime, symbols, tuple(objects))


def runtime() -> Path:
    """What every lab's library is linked with, from the cache or compiled now. Raises KernelError."""
    return _build_runtime(_compiler())


def rewrite(name: str, text: str) -> str:
    """What g++ gets to see of a file: the same lines, with what only nvcc understands replaced."""

    def pointer(match: re.Match[str]) -> str:
        kind, lines = match["type"].strip(), match[0].count("\n")
        cast = f"{kind}* const {match['name']} = static_cast<{kind}*>(yaie_dynamic_shared());"
        return cast + "\n" * lines

    text = _EXTERN_SHARED.sub(pointer, text)
    text = re.sub(r"\bstatic(\s+)__shared__", r"\1__shared__", text)
    text = re.sub(r"\b__noinline__\b", "__attribute__((noinline))", text)
    return f'#line 1 "{name}"\n{text}'


def _compile_all(
    lab: str, draft: Path, texts: dict[str, str], names: list[str], keys: list[str], compiler: str
) -> None:
    for name, text in texts.items():
        (draft / name).write_text(rewrite(name, text), "utf-8", "surrogateescape")

    def compile_one(name: str, key: str) -> None:
        target = draft / f"{name}.o"
        command = [
            compiler, *_flags(compiler), f"-ffile-prefix-map={draft}/=", f"-I{INCLUDE}", f"-I{COMMON}",
            "-c", name, "-o", str(target),
        ]  # fmt: skip
        try:
            _run(lab, draft, [*command, *INLINED])
        except KernelError as error:
            if "always_inline" not in error.message:
                raise
            _run(lab, draft, command)  # device functions that call themselves
        target.replace(_object(key))

    missing = [(n, k) for n, k in zip(names, keys, strict=True) if not _object(k).exists()]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for job in [pool.submit(compile_one, name, key) for name, key in missing]:
            job.result()


def _link(lab: str, target: Path, objects: list[Path], runtime: Path, compiler: str) -> None:
    wraps = ",".join(f"--wrap={name}" for name in WRAPPED)
    _run(lab, target.parent, [
        compiler, "-shared", "-o", str(target), *map(str, objects), str(runtime),
        f"-Wl,-z,defs,-z,now,{wraps}",
    ])  # fmt: skip


def _build_runtime(compiler: str) -> Path:
    """The runtime's library: compiled once for all labs, without the hooks that it defines."""
    key = _digest(_version(compiler), _content(RUNTIME), _content(INCLUDE))
    path = _folder() / f"yaie-runtime-{key}.so"
    if not path.exists():
        with draft_in(_folder()) as draft:
            target = draft / path.name
            _run("the runtime of yaie.cuda.on_cpu", RUNTIME, [
                compiler, "-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden",
                f"-Wl,-soname,{path.name}", "runtime.cpp", "-o", str(target),
            ])  # fmt: skip
            target.replace(path)
    return path


def _run(lab: str, folder: Path, command: list[str]) -> None:
    # A child's messages are read: in English, whatever the user's language.
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        ran = run_bounded(command, cwd=folder, timeout=TIMEOUT, env=environment)
    except subprocess.TimeoutExpired:
        raise KernelError(f"the compiler did not finish {lab} in {TIMEOUT} s") from None
    if ran.returncode:
        refuse_full_disk(ran.stderr)
        raise KernelError(f"{lab} does not compile: {_explain(ran.stderr)}")


def _explain(output: str) -> str:
    errors = [match for line in output.splitlines() if (match := _ERROR.match(line))]
    if errors:
        shown = [
            f"{Path(e['file']).name}:{e['line']}:{e['column']}: {e['what']}"
            for e in errors[:MOST_ERRORS]
        ]
        more = len(errors) - len(shown)
        return "; ".join(shown) + (f"; and {more} more" if more else "")
    missing = sorted({match["name"] for match in _UNDEFINED.finditer(output)})
    if missing:
        return "nothing defines " + ", ".join(missing[:MOST_ERRORS])
    lines = [line for line in output.splitlines() if line.strip()]
    return " ".join(lines[-3:]) or "the compiler gave no reason"


def _refuse_chevrons(name: str, text: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"\w\s*<<<.*>>>\s*\(", line.split("//")[0]):
            raise KernelError(
                f"{name}:{number}: start a kernel with launch(kernel, grid, block, shared_bytes, "
                "stream, arguments...): only nvcc understands <<< >>>"
            )


def _refuse_large(symbols: Symbols) -> None:
    for function, size in symbols.static_shared().items():
        if size > MOST_STATIC_SHARED:
            raise KernelError(
                f"{function} declares {size} bytes of __shared__ arrays, at most {MOST_STATIC_SHARED} "
                "are possible; ask for more with `extern __shared__` and launch's shared_bytes"
            )


def _dynamic_arrays(texts: dict[str, str]) -> list[Dynamic]:
    return [
        (match["name"], name, text.count("\n", 0, match.start()) + 1)
        for name, text in texts.items()
        for match in _EXTERN_SHARED.finditer(text)
    ]


def _compiler() -> str:
    if sys.platform != "linux":
        raise KernelError(ONLY_LINUX)
    path = find_host_compiler()
    if path is None:
        raise KernelError(INSTALL)
    return path


def _flags(compiler: str) -> tuple[str, ...]:
    return FLAGS + FLAGS_OF["clang++" if "clang" in _version(compiler) else "g++"]


@cache
def _version(compiler: str) -> str:
    return subprocess.run(
        [compiler, "--version"], capture_output=True, encoding="utf-8", errors="replace"
    ).stdout


@cache
def _content(folder: Path) -> str:
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return "".join(f"{file.name} {file.read_text('utf-8')}" for file in files)


def _folder() -> Path:
    return cache_folder() / "cpu"


def _object(key: str) -> Path:
    return _folder() / f"{key}.o"


def _digest(*parts: str) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(b"%d " % len(part) + part.encode("utf-8", "surrogateescape"))
    return total.hexdigest()[:16]
