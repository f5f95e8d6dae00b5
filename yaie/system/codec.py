"""Messages between processes of different hosts as bytes: JSON and arrays, never pickle.

A pickle can run any code when it is read. What this module reads can only become one of the dataclasses
that a `Codec` was made for, with fields of the types that they declare:

    bytes    4 (little-endian)    text                                  arrays
    what     length of the text   JSON: [name of the class, field ...]  the bytes of one after the other

Each array begins at a multiple of 8. It stands in the text as its shape; its dtype is what the field
declares. Where that is `NDArray[Any]`, it stands there as [dtype, shape]. A field may be a bool, an int,
a float, a str, an array, another dataclass, a list, a tuple or a dict of these, or any of them or None.
"""

import json
import math
import types
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from operator import attrgetter
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

LENGTH_BYTES = 4
ALIGNMENT = 8
"""Of an array in a message, or reading its numbers would be slow."""
MOST_DIMENSIONS = 4
MOST_SIZE = 1 << 31
DTYPES = ("bool", "uint8", "int32", "int64", "float32", "float64")
"""Of arrays whose field declares none."""

Write = Callable[[Any, list[Any]], Any]
"""A value, and the list to which its arrays are added -> what stands for it in JSON."""
Read = Callable[[Any, "_Arrays"], Any]
"""What stands in JSON, and the arrays of the message -> the value. Raises ValueError."""


class Codec:
    """Encodes and decodes messages of these dataclasses, which are known by their names."""

    def __init__(self, *kinds: type[Any]) -> None:
        """Raises TypeError for a field that cannot be written."""
        ways = {kind: _way_of(kind) for kind in kinds}
        self._writers = {kind: write for kind, (write, _) in ways.items()}
        self._readers = {kind.__name__: read for kind, (_, read) in ways.items()}

    def encode(self, message: Any) -> bytes:
        """Raises TypeError for a message of another class, or an array of an undeclared dtype."""
        kind = type(message)
        if kind not in self._writers:
            raise TypeError(f"{kind.__name__} is no message of this codec")
        arrays: list[Any] = []
        said = [kind.__name__, *self._writers[kind](message, arrays)]
        text = json.dumps(said, separators=(",", ":"), default=_number).encode()
        pieces = [len(text).to_bytes(LENGTH_BYTES, "little"), text]
        at = LENGTH_BYTES + len(text)
        for array in arrays:
            pieces += [bytes(-at % ALIGNMENT), array.tobytes()]
            at += -at % ALIGNMENT + array.nbytes
        return b"".join(pieces)

    def decode(self, data: bytes | bytearray) -> Any:
        """The message; its arrays are writable, those of a bytearray in its own memory.

        Raises ValueError for what `encode` cannot have made.
        """
        whole = data if isinstance(data, bytearray) else bytearray(data)
        length = int.from_bytes(whole[:LENGTH_BYTES], "little")
        end = LENGTH_BYTES + length
        if not LENGTH_BYTES < end <= len(whole):
            raise ValueError(f"a message of {len(whole):,} bytes cannot have {length:,} of text")
        try:
            said = json.loads(whole[LENGTH_BYTES:end])
        except RecursionError:
            raise ValueError("a message is nested too deeply") from None
        match said:
            case [str(name), *values] if name in self._readers:
                pass
            case _:
                raise ValueError("a message must be a list that begins with the name of its kind")
        arrays = _Arrays(whole, end)
        message = self._readers[name](values, arrays)
        arrays.expect_end()
        return message


class _Arrays:
    """The arrays of a message, in order. at: where the next one may begin."""

    def __init__(self, data: bytearray, at: int) -> None:
        self._data = data
        self._at = at

    def take(self, dtype: "np.dtype[Any]", shape: Any) -> "np.ndarray[Any, Any]":
        """The next one. Raises ValueError if it is not there."""
        is_shape = isinstance(shape, list) and len(shape) <= MOST_DIMENSIONS
        if not is_shape or not all(type(size) is int and 0 <= size < MOST_SIZE for size in shape):
            raise ValueError("an array must be a list of its sizes")
        count = math.prod(shape)
        begin = self._at + -self._at % ALIGNMENT
        self._at = begin + count * dtype.itemsize
        if self._at > len(self._data):
            raise ValueError(f"an array of shape {tuple(shape)} is not there in full")
        if not count:
            return np.empty(shape, dtype)
        return np.frombuffer(self._data, dtype, count, begin).reshape(shape)

    def expect_end(self) -> None:
        """Raise ValueError if there is more."""
        if self._at != len(self._data):
            raise ValueError(f"a message has {len(self._data) - self._at:,} bytes too many")


def _number(value: Any) -> Any:
    """NumPy's numbers are not JSON's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a {type(value).__name__} cannot be written into a message")


def _way(hint: Any) -> tuple[Write, Read]:
    """How values of this type are written and read."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in _PLAIN:
        return _plain(*_PLAIN[hint])
    if isinstance(hint, type) and is_dataclass(hint):
        return _way_of(hint)
    if origin in (Union, types.UnionType) and len(args) == 2 and type(None) in args:
        return _maybe(*_way(next(arg for arg in args if arg is not type(None))))
    if origin is np.ndarray:
        return _array_of(get_args(args[1])[0])
    if origin is NDArray:  # from NumPy 2.5 on it is an alias of its own
        return _array_of(args[0])
    if origin is list:
        return _items(list, *_way(args[0]))
    if origin is tuple and args[1:] == (...,):
        return _items(tuple, *_way(args[0]))
    if origin is tuple:
        return _row([_way(arg) for arg in args])
    if origin is dict:
        return _pairs(_row([_way(arg) for arg in args]))
    raise TypeError(f"a field of type {hint} cannot be written into a message")


_PLAIN: dict[Any, tuple[str, tuple[type, ...]]] = {
    bool: ("true or false", (bool,)),
    int: ("a whole number", (int,)),
    float: ("a number", (float, int)),
    str: ("a text", (str,)),
}


def _plain(name: str, kinds: tuple[type, ...]) -> tuple[Write, Read]:
    def read(said: Any, arrays: _Arrays) -> Any:
        if type(said) not in kinds:  # a bool is an int for isinstance
            raise ValueError(f"must be {name}")
        return said

    return _as_it_is, read


def _as_it_is(value: Any, arrays: list[Any]) -> Any:
    return value


def _maybe(write: Write, read: Read) -> tuple[Write, Read]:
    def write_it(value: Any, arrays: list[Any]) -> Any:
        return None if value is None else write(value, arrays)

    def read_it(said: Any, arrays: _Arrays) -> Any:
        return None if said is None else read(said, arrays)

    return write_it, read_it


def _array_of(kind: Any) -> tuple[Write, Read]:
    return _any_array() if kind is Any else _array(np.dtype(kind))


def _any_array() -> tuple[Write, Read]:
    def write(value: Any, arrays: list[Any]) -> Any:
        if value.dtype.name not in DTYPES:
            raise TypeError(f"an array of {value.dtype} cannot be written into a message")
        arrays.append(value)
        return value.dtype.name, value.shape

    def read(said: Any, arrays: _Arrays) -> Any:
        match said:
            case [str(name), shape] if name in DTYPES:
                return arrays.take(np.dtype(name), shape)
        raise ValueError("an array must be a list of its dtype and its sizes")

    return write, read


def _array(dtype: "np.dtype[Any]") -> tuple[Write, Read]:
    def write(value: Any, arrays: list[Any]) -> Any:
        if value.dtype != dtype:
            raise TypeError(f"an array of {dtype} must not be one of {value.dtype}")
        arrays.append(value)
        return value.shape

    def read(said: Any, arrays: _Arrays) -> Any:
        return arrays.take(dtype, said)

    return write, read


def _items(kind: type[Any], write: Write, read: Read) -> tuple[Write, Read]:
    def write_all(value: Any, arrays: list[Any]) -> Any:
        return value if write is _as_it_is else [write(item, arrays) for item in value]

    def read_all(said: Any, arrays: _Arrays) -> Any:
        if not isinstance(said, list):
            raise ValueError("must be a list")
        return kind(read(item, arrays) for item in said)

    return write_all, read_all


def _row(ways: Sequence[tuple[Write, Read]]) -> tuple[Write, Read]:
    """A tuple of a fixed length."""

    def write(value: Any, arrays: list[Any]) -> Any:
        return [write(item, arrays) for (write, _), item in zip(ways, value, strict=True)]

    def read(said: Any, arrays: _Arrays) -> Any:
        if not isinstance(said, list) or len(said) != len(ways):
            raise ValueError(f"must be a list of {len(ways)}")
        return tuple(read(item, arrays) for (_, read), item in zip(ways, said, strict=True))

    return write, read


def _pairs(row: tuple[Write, Read]) -> tuple[Write, Read]:
    """A dict: JSON's have only texts for keys, so it is a list of pairs."""
    write_list, read_list = _items(list, *row)

    def write(value: Any, arrays: list[Any]) -> Any:
        return write_list(value.items(), arrays)

    def read(said: Any, arrays: _Arrays) -> Any:
        return dict(read_list(said, arrays))

    return write, read


def _way_of(kind: type[Any]) -> tuple[Write, Read]:
    """A dataclass: the list of its fields."""
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    ways = [_way(hints[name]) for name in names]
    writers = [(attrgetter(name), write) for name, (write, _) in zip(names, ways, strict=True)]

    def write(value: Any, arrays: list[Any]) -> Any:
        return [write(get(value), arrays) for get, write in writers]

    def read(said: Any, arrays: _Arrays) -> Any:
        if not isinstance(said, list) or len(said) != len(names):
            raise ValueError(f"{kind.__name__} must be a list of {len(names)}")
        values = []
        for name, (_, read), item in zip(names, ways, said, strict=True):
            try:
                values.append(read(item, arrays))
            except ValueError as error:
                raise ValueError(f"{kind.__name__}.{name}: {error}") from None
        return kind(*values)

    return write, read
