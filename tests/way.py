"""The way of a request: the files and functions that one streamed chat calls, by their first call.

    python -m tests.way             # the list, then its sums
    python -m tests.way --json      # the same for programs

The tutor answers over HTTP, with the engine on a thread of this process, as `yaie serve --mine none
--no-engine-process` runs it. A first chat loads what is loaded late; of the second, every call of a
function of the repository is recorded, in whichever thread. A decode step is what happens on the
engine's thread between two calls of `LLMEngine.step`; its sums leave out model, backend and server.
"""

import argparse
import json
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx

ROOT = Path(__file__).resolve().parents[1]
REPOSITORY = ("yaie", "solutions", "labs")
STEP = "yaie/engine/llm_engine.py", "step"
"""The file and the function where a step begins."""
NOT_OF_A_STEP = ("yaie/models/", "yaie/backends/", "yaie/server/")
"""What the sums of a step leave out."""
TOKENS = 24
ASKED = {
    "messages": [{"role": "user", "content": "What is a paged KV cache?"}],
    "max_tokens": TOKENS,
    "temperature": 0,
    "stream": True,
}


@dataclass(frozen=True, slots=True)
class Call:
    """Of a function. thread: its number in the process. path: from the repository's root."""

    thread: int
    path: str
    function: str


class Recorder:
    """A profile hook for every thread that starts after `install`. calls: those made while it was on."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.on = False
        self._known: dict[CodeType, tuple[str, str] | None] = {}

    def install(self) -> None:
        sys.setprofile(self._hook)
        threading.setprofile(self._hook)

    def _hook(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not self.on:
            return
        code = frame.f_code
        if code not in self._known:
            self._known[code] = placed(code)
        if (where := self._known[code]) is not None:
            self.calls.append(Call(threading.get_ident(), *where))


def placed(code: CodeType) -> tuple[str, str] | None:
    """The path and the name of a function of the repository; None for any other code."""
    path = Path(code.co_filename)
    of_no_function = code.co_name.startswith("<") and code.co_name != "<lambda>"
    if of_no_function or not path.is_relative_to(ROOT):
        return None
    relative = path.relative_to(ROOT)
    if relative.parts[0] not in REPOSITORY:
        return None
    return relative.as_posix(), getattr(code, "co_qualname", code.co_name)


@dataclass(frozen=True, slots=True)
class Way:
    """Of one streamed chat.

    files: each with its functions, in the order of their first call. lines: of a file.
    step_files, step_calls: of a decode step, the middle one by its calls, without NOT_OF_A_STEP.
    """

    files: dict[str, list[str]]
    lines: dict[str, int]
    step_files: dict[str, int]
    step_calls: int

    @property
    def num_lines(self) -> int:
        return sum(self.lines.values())


def way_of(calls: Sequence[Call]) -> Way:
    """What these calls, in the order in which they were made, tell."""
    files: dict[str, dict[str, None]] = {}
    for call in calls:
        files.setdefault(call.path, {})[call.function] = None
    lines = {path: len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in files}
    steps = sorted(steps_of(calls), key=lambda step: step.total())
    middle = steps[len(steps) // 2]
    return Way(
        {path: list(names) for path, names in files.items()}, lines, dict(middle), middle.total()
    )


def steps_of(calls: Iterable[Call]) -> list[Counter[str]]:
    """How often each decode step called functions of each file. The first two steps and the last one
    are others: they have the prompt, and what ends a request."""
    engine: int | None = None
    steps: list[Counter[str]] = []
    for call in calls:
        if begins_step(call):
            engine = call.thread
            steps.append(Counter())
        if call.thread == engine and not call.path.startswith(NOT_OF_A_STEP):
            steps[-1][call.path] += 1
    return steps[2:-1]


def begins_step(call: Call) -> bool:
    path, function = STEP
    return call.path == path and call.function.rpartition(".")[2] == function


def record() -> Way:
    """Serve the tutor, chat twice, and tell of the second time."""
    recorder = Recorder()
    recorder.install()
    # Behind the hook: what these import starts threads.
    from tests.server.conftest import serving
    from yaie.engine.llm_engine import LLMEngine

    with serving(lambda: LLMEngine(model="tutor", mine="none")) as server:
        chat(server.http)
        recorder.on = True
        chat(server.http)
        recorder.on = False
    return way_of(recorder.calls)


def chat(http: "httpx.Client") -> None:
    """One streamed answer, read to its end."""
    with http.stream("POST", "/v1/chat/completions", json=ASKED) as answer:
        last = [line for line in answer.iter_lines() if line][-1]
    assert last == "data: [DONE]", last


def told(way: Way) -> str:
    """For people."""
    lines = [
        f"{path} ({way.lines[path]} lines): {', '.join(names)}" for path, names in way.files.items()
    ]
    lines.append(f"{len(way.files)} files with {way.num_lines} lines")
    lines.append(f"a decode step: {len(way.step_files)} files, {way.step_calls} calls")
    return "\n".join(lines)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser("python -m tests.way", description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="for programs")
    asked = parser.parse_args(arguments)
    way = record()
    print(json.dumps(asdict(way)) if asked.json else told(way))


if __name__ == "__main__":
    main(sys.argv[1:])
