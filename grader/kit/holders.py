"""Which attribute of a learner's objects or modules grows from call to call, and the line that fills it.

The line that allocates most is not always the one to mend: a list that may stay takes its place anew now
and then, and a dict may keep what another line has made.
"""

import gc
import linecache
import os
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any, NamedTuple

CONTAINERS = (list, dict, set, deque, tuple, str, bytes, bytearray)
CALLS = 16
DEPTH = 4
"""How deep the contents of a container are weighed."""
ADDS = "append|appendleft|add|extend|insert|update|setdefault"
FILLS = rf"\b{{name}}\s*(\[.*\]\s*=[^=]|\+=|=[^=]|\.({ADDS})\()"
"""What a line does that lets the attribute `name` grow."""
Place = tuple[str, int]


class Holder(NamedTuple):
    """told: as "`_known` of Detokenizer gains 8 entries". line: that fills it, if one alone does."""

    told: str
    line: Place | None


class _Attribute(NamedTuple):
    owner: Any
    name: str
    length: int
    weight: int


def holder_of(call: Callable[[], Any]) -> Holder | None:
    """Of the attributes that gain entries with each call, the one that grows by most bytes."""
    before = list(_attributes())
    for _ in range(CALLS):
        call()
    grown = []
    for owner, name, length, weight in before:
        value = getattr(owner, name, None)
        if isinstance(value, CONTAINERS) and len(value) >= length + CALLS:
            more = (len(value) - length) / CALLS
            grown.append((_weight(value, DEPTH) - weight, more, _told(owner), name))
    if not grown:
        return None
    _, more, kind, name = max(grown)
    entries = "an entry" if more == 1 else f"{more:.3g} entries"
    return Holder(f"`{name}` of {kind} gains {entries}", _line_that_fills(call, name))


def _attributes() -> Iterator[_Attribute]:
    """Of a learner's modules, and of all objects of a learner's classes: what has a length."""
    for key, module in list(sys.modules.items()):
        if key.startswith("labs."):
            for name, value in list(vars(module).items()):
                if isinstance(value, CONTAINERS) and not name.startswith("__"):
                    yield _Attribute(module, name, len(value), _weight(value, DEPTH))
    was_frozen = gc.get_freeze_count() > 0
    gc.unfreeze()  # the frozen ones are not listed
    owners = [owner for owner in gc.get_objects() if _is_own(type(owner))]
    if was_frozen:
        gc.freeze()
    for owner in owners:
        names = {name for base in type(owner).__mro__ for name in _slots_of(base)}
        for name in sorted(names.union(getattr(owner, "__dict__", ()))):
            value = getattr(owner, name, None)
            if isinstance(value, CONTAINERS):
                yield _Attribute(owner, name, len(value), _weight(value, DEPTH))


def _told(owner: Any) -> str:
    """The module's file, or the object's class."""
    if isinstance(owner, ModuleType):
        return os.path.basename(getattr(owner, "__file__", None) or owner.__name__)
    return type(owner).__name__


def _is_own(kind: type) -> bool:
    module = kind.__dict__.get("__module__")
    return isinstance(module, str) and module.startswith("labs.")


def _slots_of(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _weight(value: Any, depth: int) -> int:
    size = sys.getsizeof(value, 0)
    if depth == 0:
        return size
    if isinstance(value, dict):
        return size + sum(_weight(k, depth - 1) + _weight(v, depth - 1) for k, v in value.items())
    if isinstance(value, list | tuple | set | frozenset | deque):
        return size + sum(_weight(item, depth - 1) for item in value)
    return size


def _line_that_fills(call: Callable[[], Any], name: str) -> Place | None:
    """The line of the part that runs in the call, and lets the attribute grow; None if several do."""
    files = {
        getattr(module, "__file__", None)
        for key, module in list(sys.modules.items())
        if key.startswith("labs.")
    }
    ran: set[Place] = set()

    def on_line(frame: FrameType, event: str, argument: Any) -> Any:
        ran.add((frame.f_code.co_filename, frame.f_lineno))
        return on_line

    def on_call(frame: FrameType, event: str, argument: Any) -> Any:
        return on_line if frame.f_code.co_filename in files else None

    traced = sys.gettrace()
    sys.settrace(on_call)
    try:
        call()
    finally:
        sys.settrace(traced)
    fills = re.compile(FILLS.replace("{name}", re.escape(name)))
    found = [place for place in ran if fills.search(linecache.getline(*place))]
    return found[0] if len(found) == 1 else None
