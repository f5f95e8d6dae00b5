"""The calls of a test, written down as Python, with the state before and after the last of them."""

import re
import struct
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from itertools import groupby, islice
from typing import Any

MOST_LINES = 40
FIRST_LINES, LAST_LINES = 8, 16
"""Of a long script these are quoted in any case: what is set up, and what led to the failure."""
MOST_ALIKE = 4
"""From so many equal lines in a row on, they are counted."""
MOST_ITEMS = 24
MOST_CHARACTERS = 120
MOST_TENSORS = 6
"""Of a longer list of tensors only the shape of the first is shown."""


def _make_call(script: "Script", method: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return method(*args, **kwargs)


CarryOut = Callable[["Script", Any, tuple[Any, ...], dict[str, Any]], Any]
_carry_out: CarryOut = _make_call
_new_lines: Callable[[], list[str]] = list


class Script:
    """Lines of calls. One is current; a failure quotes it.

    number: of the scripts of its test or example, from 0. before: the state right before the last
    call. num_calls: of watched objects. watched: the types of those that were called, by name.
    """

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.lines = _new_lines()
        self.before = ""
        self.num_calls = 0
        self.watched: dict[str, type] = {}
        self._after = ""
        self._look: Callable[[], str] | None = None
        self._handles: dict[int, tuple[str, Any]] = {}  # by id; kept alive, so that ids stay theirs

    @property
    def after(self) -> str:
        """The state after the last call: as it is now, or was when the check failed."""
        self.settle()
        return self._after

    @after.setter
    def after(self, state: str) -> None:
        self._after, self._look = state, None

    def changed(self, look: Callable[[], str]) -> None:
        """A call has been made. look: tells the state, and is asked only if it is wanted."""
        self._look = look

    def settle(self) -> None:
        """Take the state now, for good: what happens from here on is not the script's any more."""
        if self._look is not None:
            look, self._look = self._look, None  # before it runs: it may fail, or come here again
            self._after = look()

    def name_of(self, handle: Any) -> str:
        """A short name for an object that is nobody's business but its maker's: node1, node2, ..."""
        if id(handle) not in self._handles:
            kind = type(handle).__name__.lower().lstrip("_")
            number = sum(type(held) is type(handle) for _, held in self._handles.values()) + 1
            self._handles[id(handle)] = (f"{kind}{number}", handle)
        return self._handles[id(handle)][0]

    def quoted(self, about: str = "") -> tuple[str, ...]:
        """The lines for a report. Of a long script: its beginning, its end, and from between them
        those that name what `about` names (r1, node2, block 7), with others if there is room."""
        lines = _counted(self.lines)
        if len(lines) <= MOST_LINES:
            return tuple(lines)
        middle = range(FIRST_LINES, len(lines) - LAST_LINES)
        names = re.compile("|".join(rf"\b{name}\b" for name in _names_in(about)) or "(?!)")
        related = [i for i in middle if names.search(lines[i])]
        others = [i for i in middle if i not in related]
        # The later ones: what is wrong at the end of the script most likely began not long before.
        kept = sorted((others + related)[-(MOST_LINES - FIRST_LINES - LAST_LINES) :])
        wanted = [*range(FIRST_LINES), *kept, *range(middle.stop, len(lines))]
        quoted: list[str] = []
        position = 0
        for i in wanted:
            quoted += [f"... {_lines(i - position)} left out ..."] * (i > position)
            quoted.append(lines[i])
            position = i + 1
        return tuple(quoted)


def _counted(lines: list[str]) -> list[str]:
    """Many equal lines in a row as one of them, and how often it comes again."""
    counted: list[str] = []
    for line, run in groupby(lines):
        times = len(list(run))
        counted += (
            [line, f"... the same {times - 1} times more ..."]
            if times >= MOST_ALIKE
            else [line] * times
        )
    return counted


def _names_in(text: str) -> list[str]:
    """Requests, nodes, blocks: r1, node2, block 7. Not every number: those are everywhere."""
    return sorted(set(re.findall(r"\b(?:[a-z]+\d+|block \d+)\b", text)))


def _lines(count: int) -> str:
    return "1 line" if count == 1 else f"{count} lines"


_current = Script()


def current_script() -> Script:
    """The script of the test, or of the Hypothesis example, that runs."""
    return _current


def start_script(*, is_example: bool = False) -> None:
    """Forget what was written down: a new scenario begins. is_example: and with it a test, or one of
    its examples; scripts are counted from there."""
    global _current
    _current = Script(0 if is_example else _current.number + 1)


def resume_script(script: Script) -> None:
    """Go back to a script that another one has taken the place of."""
    global _current
    _current = script


@contextmanager
def off_the_record() -> Iterator[None]:
    """Calls inside find out what is wrong, and are none of those that lead there."""
    script = current_script()
    start_script()
    try:
        yield
    finally:
        resume_script(script)


def listen(carry_out: CarryOut, new_lines: Callable[[], list[str]]) -> None:
    """For a replay. carry_out: makes a watched call, the last of its script so far. new_lines: makes
    the list that a script's lines are appended to."""
    global _carry_out, _new_lines
    _carry_out, _new_lines = carry_out, new_lines
    start_script(is_example=True)


def note(line: str) -> None:
    """Write down what happened, in the test's own words."""
    _current.lines.append(line)


def show(value: Any) -> str:
    """A value as a line of a script shows it, shortened; an opaque object by a name of its own."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, bool | int | float | str | bytes | type | BaseException):
        return _shortened(repr(value))
    if isinstance(value, list) and len(value) > MOST_TENSORS and _are_tensors(value):
        return f"[{_show_tensor(value[0], whole=False)}, ... {len(value):,} tensors]"
    if isinstance(value, list | set | frozenset | deque):
        begin, end = ("[", "]") if isinstance(value, list | deque) else ("{", "}")
        return begin + _items(value) + end
    if isinstance(value, tuple):
        return f"({_items(value)}{',' if len(value) == 1 else ''})"
    if isinstance(value, dict):
        pairs = [f"{show(key)}: {show(held)}" for key, held in islice(value.items(), MOST_ITEMS)]
        return "{" + ", ".join(pairs) + "}"
    if type(value).__name__ == "dtype":
        return str(value)
    if type(value).__name__ == "Tensor":
        return _show_tensor(value)
    if hasattr(value, "request_id"):
        return str(value.request_id)
    return _current.name_of(value)


def _are_tensors(values: list[Any]) -> bool:
    return all(type(value).__name__ == "Tensor" for value in values)


def _show_tensor(tensor: Any, *, whole: bool = True) -> str:
    """torch.tensor([0.4]) if that is short; otherwise the shape, and the dtype if it is no usual one.
    whole: show values at all."""
    dtype = str(tensor.dtype)
    is_usual = dtype in ("torch.float32", "torch.int64", "torch.bool")
    if whole and tensor.numel() <= MOST_ITEMS:
        values = tensor.tolist() if dtype != "torch.float32" else _rounded(tensor.tolist())
        suffix = "" if is_usual else f", dtype={dtype}"
        if len(text := f"torch.tensor({values}{suffix})") <= MOST_CHARACTERS:
            return text
    return f"tensor {list(tensor.shape)}" + ("" if is_usual else f" {dtype.removeprefix('torch.')}")


def _rounded(values: Any) -> Any:
    """As few digits as tell one float32 from the next."""
    if isinstance(values, list):
        return [_rounded(value) for value in values]
    return next(
        short
        for digits in (6, 7, 8, 9)
        if (short := float(f"{values:.{digits}g}")) == values
        or digits == 9
        or struct.pack("f", short) == struct.pack("f", values)
    )


def _items(values: Any) -> str:
    shown = [show(item) for item in islice(values, MOST_ITEMS)]
    return ", ".join(shown + ["..."] * (len(values) > MOST_ITEMS))


def _shortened(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[: MOST_CHARACTERS - 4]} ..."


def watch(target: Any, name: str, describe: Callable[[Any], str] | None = None) -> Any:
    """`target` with every method call written down as `name.method(...) -> result`.

    describe: the state in a few lines, from public methods; noted before and after each call.
    """
    return _Watched(target, name, describe)


def quietly(target: Any) -> Any:
    """What `watch` wraps: for the grader's own looks, which are no part of the script."""
    return target._target if isinstance(target, _Watched) else target


class _Watched:
    """Passes everything on; attributes that are not callable are read without a line."""

    def __init__(self, target: Any, name: str, describe: Callable[[Any], str] | None) -> None:
        self._target = target
        self._name = name
        self._describe = describe

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(self._target, attribute)
        if not callable(value):
            return value

        def call(*args: Any, **kwargs: Any) -> Any:
            script = _current
            shown = [show(arg) for arg in args]
            shown += [f"{key}={show(arg)}" for key, arg in kwargs.items()]
            line = f"{self._name}.{attribute}({', '.join(shown)})"
            script.before = self._state()
            script.lines.append(line)
            script.num_calls += 1
            script.watched[self._name] = type(self._target)
            script.changed(self._state)
            try:
                result = _carry_out(script, value, args, kwargs)
            except BaseException as error:
                script.lines[-1] = f"{line}  # raises {type(error).__name__}"
                script.settle()
                raise
            if result is not None:
                script.lines[-1] = f"{line}  # -> {show(result)}"
            return result

        return call

    def __len__(self) -> int:
        return len(self._target)

    def _state(self) -> str:
        if self._describe is None:
            return ""
        try:
            return self._describe(self._target)
        except Exception as error:  # noqa: BLE001, a learner's object may fail in any way
            return f"(cannot be shown: {type(error).__name__}: {error})"
