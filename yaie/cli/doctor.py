"""`yaie doctor`: what this machine can run, and what is missing.

Every check is a function that returns a `Finding` or several; one that is not `needed` may be missing
without harm to the CPU engine. What kernels need stands in `doctor_kernels.py`.
"""

import platform
import sys
import urllib.error
import urllib.request
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from yaie import __version__
from yaie.cli.console import parts_table, say, show_table
from yaie.cli.doctor_kernels import Finding, kernel_findings
from yaie.core.config import EMBEDDED, EngineConfig
from yaie.core.errors import YaieError

GIB = 2**30


def doctor(
    online: Annotated[
        bool, typer.Option("--online", help="Also try to reach the model hub.")
    ] = False,
    port: Annotated[int, typer.Option(help="The port that the server would use.")] = 8000,
) -> None:
    """Say what this machine can run and what is missing. Exit code 0 if the engine runs on the CPU."""
    findings = [_python(), *_torch(), _memory(), _tutor(), *kernel_findings(), _port(port)]
    if online:
        findings.append(_hub())
    _print(findings)
    _print_parts()
    if any(finding.needed and not finding.ok for finding in findings):
        raise typer.Exit(1)


def _print(findings: list[Finding]) -> None:
    table = Table("", "what", "seen", "to do", box=None, padding=(0, 2), header_style="dim")
    for finding in findings:
        if finding.ok:
            mark = Text("ok", "green")
        else:
            mark = Text("missing", "bold red") if finding.needed else Text("without", "yellow")
        table.add_row(mark, finding.subject, finding.seen, finding.todo)
    say(f"YAIE {__version__} on {platform.platform()}\n")
    show_table(table)


def _print_parts() -> None:
    from yaie.backends import choose_backend
    from yaie.models.loader import resolve_device

    config = EngineConfig()
    try:
        backend = choose_backend(config, resolve_device(config))
        note = f" ({backend.note})" if backend.note else ""
        say(f"\nBackend {backend.name}{note}:")
        show_table(parts_table(backend.parts.table()))
    except YaieError as error:
        say(error.message)


def _python() -> Finding:
    ok = sys.version_info >= (3, 10)
    todo = "" if ok else "Install Python 3.10 or later."
    return Finding("Python", ok, platform.python_version(), todo, needed=True)


def _torch() -> list[Finding]:
    try:
        import torch

        from yaie.worker.threads import use_threads
    except (ImportError, OSError) as error:  # OSError: a library that it needs is not there
        seen = (str(error) or type(error).__name__).splitlines()[0]
        return [Finding("PyTorch", False, seen, "pip install torch", needed=True)]
    use_threads(None)  # as the engine would
    onednn = "with oneDNN" if torch.backends.mkldnn.is_available() else "without oneDNN"
    capability = torch.backends.cpu.get_cpu_capability()
    return [
        Finding("PyTorch", True, f"{torch.__version__}, {onednn}", needed=True),
        Finding(
            "CPU", True, f"{platform.machine()}, {capability}, {torch.get_num_threads()} threads"
        ),
        _gpu(),
    ]


def _gpu() -> Finding:
    import torch

    if not torch.cuda.is_available():
        todo = "Nothing: the engine runs on the CPU."
        return Finding("GPU", False, "no CUDA device that PyTorch can use", todo)
    devices = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    return Finding(
        "GPU", True, ", ".join(f"{gpu.name} ({gpu.total_memory / GIB:.0f} GiB)" for gpu in devices)
    )


def _memory() -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    enough = memory.available >= GIB
    seen = f"{memory.available / GIB:.1f} of {memory.total / GIB:.1f} GiB free"
    return Finding("memory", enough, seen, "" if enough else "Close other programs.", needed=True)


def _tutor() -> Finding:
    from yaie.models.tutor import HYBRID_PATH, TUTOR_PATH

    missing = [
        str(folder)
        for folder in (TUTOR_PATH, HYBRID_PATH)
        if not (folder / "config.json").exists() or not any(folder.glob("*.safetensors"))
    ]
    if missing:
        todo = "These files are part of the repository; fetch them again."
        return Finding("tutor model", False, f"not in {' and '.join(missing)}", todo)
    return Finding("tutor model", True, " and ".join(EMBEDDED))


def _port(port: int) -> Finding:
    from yaie.server.listen import listen

    try:
        listen("127.0.0.1", port).close()
    except YaieError as error:
        return Finding(f"port {port}", False, "in use", error.message)
    return Finding(f"port {port}", True, "free")


def _hub() -> Finding:
    from huggingface_hub import constants

    try:
        urllib.request.urlopen(constants.ENDPOINT, timeout=10).close()
    except (urllib.error.URLError, OSError) as error:
        todo = "Models on disk and the tutor work; hub ids do not."
        return Finding("model hub", False, str(getattr(error, "reason", error)), todo)
    return Finding("model hub", True, f"{constants.ENDPOINT} answers")
