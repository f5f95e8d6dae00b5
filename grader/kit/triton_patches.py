"""Where `triton_watch` takes hold of Triton's interpreter: the only file that knows its inside.

Written against `triton/runtime/interpreter.py` of Triton 3.6 and 3.7. Pointers are `TensorHandle`s;
their `attr` is a dictionary in which Triton keeps hints, and in which we keep where a pointer is from.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import triton.runtime.interpreter as interpreter

Patch = tuple[Any, str, Callable[..., Any]]
MOVES = (
    "create_addptr",
    "create_splat",
    "create_broadcast",
    "create_expand_dims",
    "create_reshape",
    "create_trans",
    "create_bitcast",
    "create_int_to_ptr",
    "create_ptr_to_int",
    "create_unsplat",
)
"""What makes a pointer of a pointer: the first argument that comes from a tensor says from which."""


class Watch(Protocol):
    """What stands between the interpreter and memory; `triton_watch` has it."""

    seen: Any

    def launch(
        self, kernel: str, grid: tuple[int, int, int], arguments: dict[str, Any]
    ) -> None: ...

    def begin(self, program: tuple[int, int, int]) -> None: ...

    def origin_of(self, name: str, tensor: Any) -> Any: ...

    def forget(self) -> None: ...

    def check(self, deed: str, pointers: Any, mask: Any) -> Any: ...


def patches(watch: Watch) -> Iterator[Patch]:
    """(object, attribute, what to put there while `watch` is on)."""
    builder = interpreter.InterpreterBuilder
    for name in MOVES:
        yield builder, name, _keeping_origin(inspect.getattr_static(builder, name))
    for handle in (interpreter.BlockPointerHandle, interpreter.TensorDescHandle):
        yield handle, "materialize_pointers", _keeping_base(handle.materialize_pointers)
    yield from _memory(watch, builder)
    yield from _calls(watch)


def _keeping_origin(move: Callable[..., Any]) -> Callable[..., Any]:
    def moved(self: Any, *args: Any, **kwargs: Any) -> Any:
        handle = move(self, *args, **kwargs)
        for argument in args:
            if origin := getattr(argument, "attr", {}).get("origin"):
                handle.attr["origin"] = origin
                break
        return handle

    return moved


def _keeping_base(materialize: Callable[..., Any]) -> Callable[..., Any]:
    def materialized(self: Any, *args: Any) -> Any:
        pointers, mask = materialize(self, *args)
        if origin := self.base.attr.get("origin"):
            pointers.attr["origin"] = origin
        return pointers, mask

    return materialized


def _memory(watch: Watch, builder: Any) -> Iterator[Patch]:
    """Loads, stores, atomics and products. Plain loads and stores go through the masked ones."""
    load, store = builder.create_masked_load, builder.create_masked_store
    swap, update = builder.create_atomic_cas, builder.create_atomic_rmw
    dot = builder.create_dot

    def checked_load(
        self: Any, pointers: Any, mask: Any, other: Any, *rest: Any, **more: Any
    ) -> Any:
        watch.check("It reads", pointers, mask)
        if other is None:
            other = _anything(pointers)
        return load(self, pointers, mask, other, *rest, **more)

    def checked_store(self: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
        watch.check("It writes", pointers, mask)
        return store(self, pointers, value, mask, *rest)

    def checked_swap(self: Any, pointer: Any, *rest: Any) -> Any:
        watch.check("It writes", pointer, None).atomics += pointer.data.size
        return swap(self, pointer, *rest)

    def checked_update(
        self: Any, kind: Any, pointers: Any, value: Any, mask: Any, *rest: Any
    ) -> Any:
        watch.check("It writes", pointers, mask).atomics += int(mask.data.sum())
        return update(self, kind, pointers, value, mask, *rest)

    def counted_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        watch.seen.dots += 1
        watch.seen.flops += 2 * a.data.size * b.data.shape[-1]
        # rest: accumulator, input_precision (a number of Triton's with a name), and more.
        precision = rest[1].name.lower() if a.data.dtype == np.float32 else ""
        watch.seen.precisions.append(precision)
        return dot(self, a, b, *rest)

    yield builder, "create_masked_load", checked_load
    yield builder, "create_masked_store", checked_store
    yield builder, "create_atomic_cas", checked_swap
    yield builder, "create_atomic_rmw", checked_update
    yield builder, "create_dot", counted_dot


def _anything(pointers: Any) -> Any:
    """What lanes that are masked off hold without `other`: the interpreter has 0, a GPU what was in the
    register. Here it is NaN, or the largest number."""
    dtype = pointers.get_element_ty()
    numbers = interpreter._get_np_dtype(dtype)
    if dtype == interpreter.tl.bfloat16:  # which the interpreter keeps as its bits
        worst: Any = 0x7FC0
    elif numbers.kind == "f":
        worst = np.nan
    else:
        worst = True if numbers.kind == "b" else np.iinfo(numbers).max
    return interpreter.TensorHandle(np.full(pointers.data.shape, worst, numbers), dtype)


def _calls(watch: Watch) -> Iterator[Patch]:
    """Launches of kernels, and calls of helpers inside them."""
    launch, convert = interpreter.GridExecutor.__call__, interpreter._implicit_cvt
    patch_language = interpreter._patch_lang
    set_program = interpreter.InterpreterBuilder.set_grid_idx
    names: list[tuple[str, Any]] = []
    languages: set[int] = set()  # modules of triton.language that are interpreted by now
    named_in: dict[int, set[int]] = {}  # those that a module's names lead to, during a launch

    def watched_launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        known = {k: v for k, v in kwargs.items() if k in self.arg_names}
        arguments = inspect.getcallargs(self.fn, *args, **known)
        names[:] = [
            (name, value) for name, value in arguments.items() if hasattr(value, "data_ptr")
        ]
        grid = self.grid(arguments) if callable(self.grid) else self.grid
        watch.launch(self.fn.__name__, (*grid, 1, 1)[:3], arguments)
        languages.clear()
        named_in.clear()
        try:
            return launch(self, *args, **kwargs)
        except interpreter.InterpreterError as error:
            raise innermost(error) from None
        finally:
            languages.clear()
            watch.forget()

    def begun(self: Any, *program: int) -> None:
        watch.begin((program[0], program[1], program[2]))
        set_program(self, *program)

    def named(argument: Any) -> Any:
        converted = convert(argument)
        if hasattr(argument, "data_ptr"):
            name = next((n for n, value in names if _is_same(value, argument)), "a tensor")
            converted.handle.attr["origin"] = watch.origin_of(name, argument)
        return converted

    def patch_once(function: Any) -> Any:
        """Triton does this anew for every call of a helper, tl.sum among them, and it is slow."""
        space = function.__globals__
        found = named_in.get(id(space))
        if found is None:
            found = named_in[id(space)] = {
                id(value)
                for value in space.values()
                if value is interpreter.tl or value is interpreter.tl.core
            }
        if found <= languages:
            return interpreter._LangPatchScope()
        languages.update(found)
        return patch_language(function)

    yield interpreter.GridExecutor, "__call__", watched_launch
    yield interpreter.InterpreterBuilder, "set_grid_idx", begun
    yield interpreter, "_implicit_cvt", named
    yield interpreter, "_patch_lang", patch_once


def innermost(error: BaseException) -> BaseException:
    """What an error was before the interpreter wrapped it, once for each call inside a kernel."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__
    return error


def _is_same(one: Any, other: Any) -> bool:
    return bool(
        one.data_ptr() == other.data_ptr()
        and one.shape == other.shape
        and one.stride() == other.stride()
    )
