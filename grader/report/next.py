"""The end of a report: one thing to do now."""

from collections.abc import Collection
from pathlib import Path

from rich.text import Text

from grader.machine import CUDA, GPU, TRITON
from grader.report.lines import prose, verbatim
from grader.verdict import LabResult, TaskResult, Verdict
from yaie.curriculum.manifest import ROOT, Lab, Task

PAGES = Path("book/src")
TRY_IT = {
    "api_server": "yaie serve",
    "cuda_graphs": "yaie chat --overlap on",
    "speculative": "yaie chat --speculate ngram",
    "quantization": "yaie quantize tutor --to int8 --out tutor-int8",
    "tensor_parallel": "yaie chat --tensor-parallel 2",
    "structured_output": "yaie serve",
    "state_cache": "yaie chat tutor-hybrid",
}
"""Where a finished part shows, if not in `yaie chat`."""
AT_TIMES = {
    "quantization": "With a quantized model the",
    "tensor_parallel": "On several ranks the",
    "state_cache": "With a hybrid model the",
}
"""Where an engine has use for a part, if that is not everywhere."""
ON_A_CPU = {
    "triton": "in Triton's interpreter, where a token takes a second or two",
    "cuda": "as C++ on the CPU with every access checked, where a token takes about a second",
}
"""How `make chat BACKEND=...` runs without a GPU. Measured with the embedded tutor."""
DEVICES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")
"""One of these is there where a GPU can be used; the Makefile looks too. Torch would take seconds."""


def next_step(
    result: LabResult,
    width: int,
    impl: str = "labs",
    passed: Collection[str] = (),
    earlier: Collection[str] = (),
) -> list[Text]:
    """passed, earlier: see `print_report`."""
    lab = result.lab
    open_tasks = [task for task in result.tasks if task.verdict is not Verdict.PASSED]
    if open_tasks:
        return _do(result, _first_to_do(lab, open_tasks), width, impl)
    known = {*result.passed, *passed}
    left = [task for task in lab.tasks if task.id not in known]
    # One that is written, but without a pass on this source, most likely passed before the last edit.
    unwritten = [task for task in left if task.id in result.open_places]
    if unwritten:
        return _do(result, unwritten[0], width, impl)
    suffix = "" if impl == "labs" else f" IMPL={impl}"
    if left:
        ids = [task.id for task in left]
        return [
            Text(f"Next: the whole lab, make grade LAB={lab.key}{suffix}"),
            *_what_is_left(
                [i for i in ids if i in earlier], [i for i in ids if i not in earlier], width
            ),
        ]
    if impl != "labs":
        return [Text(f"Complete. This was IMPL={impl}: your own part is graded without it.")]
    if not result.digest:
        return [Text(f"Complete, but the files changed meanwhile: make grade LAB={lab.key} again.")]
    return _complete(lab, width)


def _what_is_left(earlier: list[str], never: list[str], width: int) -> list[Text]:
    """Why a lab of which every task is written is not complete."""
    lines = []
    if earlier:
        why = "a pass counts for the files that were graded"
        told = f"{_named(earlier)} passed on earlier files; {why}."
        lines += prose(told, width=width, indent=2)
    if never:
        have = "has" if len(never) == 1 else "have"
        told = f"{_named(never)} {have} not been graded on these files."
        lines += prose(told, width=width, indent=2)
    return lines


def _named(ids: list[str]) -> str:
    return f"{'task' if len(ids) == 1 else 'tasks'} {', '.join(ids)}"


def _first_to_do(lab: Lab, tasks: list[TaskResult]) -> Task:
    """A failure before what is not written; of a task that waits for another one, that one."""
    failed = [task for task in tasks if task.verdict is Verdict.FAILED]
    unwritten = [t for t in tasks if t.verdict is Verdict.NOT_IMPLEMENTED and not t.waits_for]
    first = [*failed, *unwritten, *tasks][0]
    awaited = [task for task in lab.tasks if task.id == first.waits_for]
    return first.task if first in failed or not awaited else awaited[0]


def _do(result: LabResult, task: Task, width: int, impl: str) -> list[Text]:
    """A task, and where it is to be written if none of it has been graded as wrong."""
    lab = result.lab
    is_failed = any(t.task == task and t.verdict is Verdict.FAILED for t in result.tasks)
    places = () if is_failed else result.open_places.get(task.id, ())
    named = f"LAB={lab.key} TASK={task.id}"
    lines = [Text(f"Next: task {task.id}, {task.title}.")]
    for index, place in enumerate(places):
        first, *more = prose(place, width=width, indent=12)
        label = "  to write  " if not index else " " * 12
        lines += [Text(label + first.plain.strip()), *more]
    return [
        *lines,
        Text(f"  a hint    make hint {named}"),
        Text(f"  again     make grade {named}" + ("" if impl == "labs" else f" IMPL={impl}")),
        Text(f"  chapter   {chapter_address(lab.chapter)}"),
        *(Text(f"  sheet     {sheet}") for sheet in sheet_address(lab)),
    ]


def _complete(lab: Lab, width: int) -> list[Text]:
    """What runs on the part from now on, on this machine."""
    backend = kernel_backend(lab)
    try_it = f"make chat BACKEND={backend}" if backend else TRY_IT.get(lab.key, "yaie chat")
    where = AT_TIMES.get(lab.key, "The")
    praise = f"Complete. {where} engine runs on your part from now on: {lab.plugged_in}."
    note: list[Text] = []
    if backend and GPU in lab.verify:
        praise = (
            f"Complete. On a GPU the engine runs on your kernels from now on: {lab.plugged_in}."
        )
        if not has_gpu():
            here = (
                f"This machine has none: the engine runs on PyTorch unless it is asked for the backend "
                f"{backend}, which runs your kernels {ON_A_CPU[backend]}."
            )
            note = prose(here, width=width)
    return [
        *prose(praise, "bold green", width=width),
        *note,
        *verbatim(
            f"  see it    make demo LAB={lab.key}\n"
            f"  try it    {try_it}\n"
            f"  compare   solutions/{lab.key} has the reference"
        ),
    ]


def kernel_backend(lab: Lab) -> str:
    """The backend that a lab's kernels are written for; "" for a part that every backend runs on."""
    if not lab.is_kernel:
        return ""
    backends = {TRITON: "triton", CUDA: "cuda"}
    return next((backends[way] for way in lab.verify if way in backends), "")


def has_gpu() -> bool:
    return any(Path(device).exists() for device in DEVICES)


def chapter_address(chapter: str, root: Path = ROOT) -> str:
    """The chapter's title, and its file if the book has it."""
    for page in sorted((root / PAGES).rglob("*.md")):
        first = page.read_text("utf-8").lstrip().partition("\n")[0]
        if first.startswith("# ") and first.removeprefix("# ").strip() == chapter:
            return f"{chapter} ({page.relative_to(root).as_posix()}, or make docs-serve)"
    return chapter


def sheet_address(lab: Lab, root: Path = ROOT) -> tuple[str, ...]:
    """The file that has a note on each task of a lab; nothing where the book is not."""
    page = PAGES / f"labs/{lab.key}.md"
    return (page.as_posix(),) if (root / page).is_file() else ()
