"""Whether a test fails by what the part keeps in its modules from one call to the next.

A value that is made on the first call and kept, a list of all calls, one buffer for all results: the
failures that they cause look like any other. So a test that has failed runs again, and before each call
of the part its modules hold what they held after the import. If the test passes then, and fails
without, what they keep is the cause.

    memory = Memory(part)                          right after the import
    memory.cause_of(lambda: test(part))            "" or the variable's name
"""

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from types import FrameType, FunctionType, ModuleType
from typing import Any

from grader.kit.memory import HISTORY
from grader.kit.rerun import passes
from grader.kit.standing import BUFFER

MOST_NAMED = 3
"""Variables: where more have changed, one alone is not looked for."""
ABSENT = object()
LRU = type(lru_cache(bool))
CONTAINERS = list | dict | set | deque


class Place:
    """Something of a module that may keep a value. name: as "_seen (ops.py)"."""

    def __init__(self, name: str) -> None:
        self.name = name

    def state(self) -> Any:
        """What it holds, as `put` takes it."""
        raise NotImplementedError

    def put(self, state: Any) -> None:
        raise NotImplementedError


State = tuple[Place, Any]


class Content(Place):
    """A list, dict, set or deque that the part fills."""

    def __init__(self, name: str, held: Any) -> None:
        super().__init__(name)
        self._held = held

    def state(self) -> Any:
        return list(self._held.items()) if isinstance(self._held, dict) else list(self._held)

    def put(self, state: Any) -> None:
        self._held.clear()
        if isinstance(self._held, dict):
            dict.update(self._held, state)  # a Counter's own would count
        elif isinstance(self._held, set):
            self._held.update(state)
        else:
            self._held.extend(state)


class Binding(Place):
    """A name that a function binds anew: of a module, by `global`, or of a class or a function."""

    def __init__(self, name: str, home: Any, attribute: str) -> None:
        super().__init__(name)
        self._home, self._attribute = home, attribute

    def state(self) -> Any:
        return vars(self._home).get(self._attribute, ABSENT)

    @property
    def is_tritons(self) -> bool:
        """Whether Triton's interpreter has put it there, as it does in each module with a kernel."""
        interpreter = sys.modules.get("triton.runtime.interpreter")
        return getattr(interpreter, self._attribute, None) is self.state()

    def put(self, state: Any) -> None:
        if state is not ABSENT:
            setattr(self._home, self._attribute, state)
        elif self._attribute in vars(self._home):
            delattr(self._home, self._attribute)


class Cached(Place):
    """What `functools.cache` and `lru_cache` keep: it can be dropped, but not be put back."""

    def __init__(self, name: str, function: Any) -> None:
        super().__init__(name)
        self._function = function

    def state(self) -> Any:
        return self._function.cache_info().currsize

    def put(self, state: Any) -> None:
        if state == 0:
            self._function.cache_clear()


class Memory:
    """What a part's modules keep, as it is now; see the module's docstring."""

    def __init__(self, part: ModuleType) -> None:
        self._part = part
        self._files = _files_of(part)
        try:
            self._before: list[State] | None = [(one, one.state()) for one in _places(part)]
        except Exception:  # noqa: BLE001, a part may have anything in its modules
            self._before = None

    def cause_of(self, again: Callable[[], object]) -> str:
        """Where what is kept lies, if the test, run `again`, fails by it; "" if it does not."""
        changed = [] if self._before is None else list(self._changed(self._before))
        now = [(place, place.state()) for place, _ in changed]
        alone = [[one] for one in changed] if 1 < len(changed) <= MOST_NAMED else []
        for suspects in (*alone, changed) if changed else ():
            try:
                with _before_each_call(self._files, suspects):
                    is_right = passes(again)
            finally:
                _put(now)
            if is_right and not passes(again):
                return " and ".join(place.name for place, _ in suspects)
        return ""

    def _changed(self, before: Sequence[State]) -> Iterator[State]:
        """Places that hold other things than after the import, and what they held then."""
        known = set()
        for place, was in before:
            known.add((type(place), place.name))
            if not _same(place.state(), was):
                yield place, was
        for place in _places(self._part):
            if not isinstance(place, Binding) or (Binding, place.name) in known:
                continue
            if not place.is_tritons:
                yield place, ABSENT


def with_cause(why: str, cause: str) -> str:
    """cause: of `cause_of`. What a test says of buffers and histories stays true; what it says of other
    mistakes does not."""
    if why.endswith((BUFFER, HISTORY)):
        return f"{why} Here it is kept in {cause}."
    return (
        f"An earlier call decides what this one gives, perhaps one of another test: what it has left in "
        f"{cause} is still there. This test passes if that is reset before each call."
    )


@contextmanager
def _before_each_call(files: str, places: Sequence[State]) -> Iterator[None]:
    """In the block these places hold these states whenever the part is called from outside."""
    depth = 0

    def look(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal depth
        if event not in ("call", "return") or not frame.f_code.co_filename.startswith(files):
            return
        if event == "return":
            depth = max(0, depth - 1)
            return
        if depth == 0:
            _put(places)
        depth += 1

    before = sys.getprofile()
    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(before)


def _put(places: Sequence[State]) -> None:
    for place, state in places:
        place.put(state)


def _places(part: ModuleType) -> Iterator[Place]:
    """Of all modules of a part and of the classes and functions in them."""
    for name, module in list(sys.modules.items()):
        if name != part.__name__ and not name.startswith(f"{part.__name__}."):
            continue
        file = os.path.basename(getattr(module, "__file__", None) or name)
        yield from _places_in(module, "", file)
        for key, value in list(vars(module).items()):
            if _is_kind(value, type | FunctionType) and value.__module__ == name:
                yield from _places_in(value, f"{key}.", file)


def _places_in(home: Any, prefix: str, file: str) -> Iterator[Place]:
    for key, value in list(vars(home).items()):
        name = f"{prefix}{key} ({file})"
        if (
            _is_kind(value, LRU)
            and _is_kind(home, ModuleType)
            and value.__module__ != home.__name__
        ):
            continue  # imported from another module, where it is looked at
        if _is_kind(value, LRU):
            yield Cached(f"the cache of {name}", value)
        elif _is_kind(value, FunctionType):
            for default in (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()):
                if _is_kind(default, CONTAINERS):
                    yield Content(f"a default argument of {name}", default)
        elif not key.startswith("__") and _is_data(value):
            yield Binding(name, home, key)
            if _is_kind(value, CONTAINERS):
                yield Content(name, value)


def _is_kind(value: Any, kinds: Any) -> bool:
    """`isinstance` that asks the object nothing."""
    return issubclass(type(value), kinds)


def _is_data(value: Any) -> bool:
    """Not a function, a class, a module, or what makes an attribute of a class."""
    is_code = callable(value) or hasattr(type(value), "__get__")
    return not is_code and not _is_kind(value, ModuleType)


def _same(one: Any, other: Any) -> bool:
    """Whether two states are the same objects: values may have any idea of what is equal."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return one is other or (type(one) is int and type(other) is int and one == other)


def _files_of(part: ModuleType) -> str:
    """What the paths of a part's files begin with."""
    file = getattr(part, "__file__", None) or ""
    is_package = os.path.basename(file) == "__init__.py"
    return os.path.dirname(file) + os.sep if is_package else file
