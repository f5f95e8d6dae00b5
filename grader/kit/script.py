"""The calls of a test, written down as Python, with the state before and after the last of them."""

from collections import deque
from collections.abc import Callable
from enum import Enum
from itertools import islice
from typing import Any

MOST_LINES = 40
MOST_ITEMS = 24
MOST_CHARACTERS = 120


class Script:
    """Lines of calls. One is current; a failure quotes it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.before = ""
        self.after = ""
        self._handles: dict[int, tuple[str, Any]] = {}  # by id; kept alive, so that ids stay theirs

    def name_of(self, handle: Any) -> str:
        """A short name for an object that is nobody's business but its maker's: node1, node2, ..."""
        if id(handle) not in self._handles:
            kind = type(handle).__name__.lower().lstrip("_")
            number = sum(type(held) is type(handle) for _, held in self._handles.values()) + 1
            self._handles[id(handle)] = (f"{kind}{number}", handle)
        return self._handles[id(handle)][0]

    def quoted(self) -> tuple[str, ...]:
        """The lines for a report; the middle of a long script is left out."""
        if len(self.lines) <= MOST_LINES:
            return tuple(self.lines)
        left_out = len(self.lines) - MOST_LINES
        half = MOST_LINES // 2
        return (*self.lines[:half], f"... {left_out} more lines ...", *self.lines[-half:])


_current = Script()


def current_script() -> Script:
    """The script of the test, or of the Hypothesis example, that runs."""
    return _current


def start_script() -> None:
    """Forget what was written down: a new test or example begins."""
    global _current
    _current = Script()


def resume_script(script: Script) -> None:
    """Go back to a script that another one has taken the place of."""
    global _current
    _current = script


def note(line: str) -> None:
    """Write down what happened, in the test's own words."""
    _current.lines.append(line)


def show(value: Any) -> str:
    """A value as a line of a script shows it, shortened; an opaque object by a name of its own."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, bool | int | float | str | bytes | type | BaseException):
        return _shortened(repr(value))
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
        values = f" {value.tolist()}" if value.numel() <= MOST_ITEMS else ""
        return f"tensor {list(value.shape)}{values}"
    if hasattr(value, "request_id"):
        return str(value.request_id)
    return _current.name_of(value)


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
            script.before = script.after or self._state()
            script.lines.append(line)
            try:
                result = value(*args, **kwargs)
            except BaseException as error:
                script.lines[-1] = f"{line}  # raises {type(error).__name__}"
                script.after = self._state()
                raise
            if result is not None:
                script.lines[-1] = f"{line}  # -> {show(result)}"
            script.after = self._state()
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
