"""What Triton's interpreter computes again and again, kept: most of a small program's time is this.

Of Triton 3.4 to 3.7. What a kernel gives is the same with and without.
"""

import inspect
from typing import Any


def quicken(interpreter: Any) -> None:
    """Called once, by `repair`. interpreter: the module `triton.runtime.interpreter`."""
    import triton.language as tl
    from triton.language.semantic import TritonSemantic

    check_overflow = TritonSemantic.binary_op_sanitize_overflow_impl
    look_up = interpreter._get_np_dtype
    dtypes: dict[str, Any] = {}

    def checked_in_debug_mode(self: Any, *args: Any) -> None:
        """Every sum and product of int32 is computed in int64 too, for an assertion that only a debug
        mode has."""
        if self.builder.options.debug:
            check_overflow(self, *args)

    def remembered(dtype: Any) -> Any:
        """Triton makes a table of all dtypes each time that it looks one up."""
        element = dtype.element_ty if isinstance(dtype, tl.block_type) else dtype
        if isinstance(element, tl.pointer_type):
            return look_up(element)
        if element.name not in dtypes:
            dtypes[element.name] = look_up(element)
        return dtypes[element.name]

    TritonSemantic.binary_op_sanitize_overflow_impl = checked_in_debug_mode
    interpreter._get_np_dtype = remembered
    _keep_shapes(tl)
    _pass_what_is_alike(tl, TritonSemantic)
    _keep_builtins(interpreter, tl)
    _find_lines(interpreter)


def _pass_what_is_alike(tl: Any, semantic: Any) -> None:
    """Most operands have one type and one shape, or none: nothing has to be cast or spread."""
    check_types, broadcast = semantic.binary_op_type_checking_impl, semantic.broadcast_impl_value

    def checked(
        self: Any,
        lhs: Any,
        rhs: Any,
        allow_lhs_ptr: bool = False,
        allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True,
        div_or_mod: bool = False,
    ) -> Any:
        """A quotient of two float16 is float32, and pointers have rules of their own."""
        if not div_or_mod and isinstance(lhs, tl.tensor) and isinstance(rhs, tl.tensor):
            mine = lhs.type.scalar
            if mine.name == rhs.type.scalar.name and not mine.is_ptr():
                return self.broadcast_impl_value(lhs, rhs)
        return check_types(
            self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod
        )

    def spread(self: Any, lhs: Any, rhs: Any) -> Any:
        mine, theirs = lhs.type, rhs.type
        if mine.is_block() != theirs.is_block():
            return broadcast(self, lhs, rhs)
        if mine.is_block() and [*mine.shape] != [*theirs.shape]:
            return broadcast(self, lhs, rhs)
        return lhs, rhs

    semantic.binary_op_type_checking_impl = checked
    semantic.broadcast_impl_value = spread


def _keep_builtins(interpreter: Any, tl: Any) -> None:
    """At each launch Triton looks through all members of the language for those that it replaces."""
    known: dict[Any, list[tuple[str, Any]]] = {}

    def patch_builtins(package: Any, builder: Any, *scope: Any) -> None:
        if package not in known:
            members = inspect.getmembers(package)
            known[package] = [(name, one) for name, one in members if tl.core.is_builtin(one)]
        for name, member in known[package]:
            interpreter._patch_attr(package, name, member, builder, *scope)

    interpreter._patch_builtin = patch_builtins


def _find_lines(interpreter: Any) -> None:
    """Triton makes a function for the compiler of each kernel, to ask it for its file and line."""

    def place(self: Any) -> tuple[str, int]:
        lines, first = inspect.getsourcelines(self.fn)
        starts = (i for i, line in enumerate(lines) if line.strip().startswith("def "))
        return self.fn.__code__.co_filename, first + next(starts, 0)

    interpreter.FunctionRewriter._get_jit_fn_file_line = place


def _keep_shapes(tl: Any) -> None:
    """Every tensor and every type of one makes its shape anew, of a dozen objects."""
    make_tensor, make_block = tl.tensor.__init__, tl.block_type.__init__
    of_tensors: dict[Any, dict[str, Any]] = {}  # what those of one shape have in common
    of_blocks: dict[Any, dict[str, Any]] = {}

    def tensor_of_known_shape(self: Any, handle: Any, type: Any) -> None:
        shape = tuple(type.shape) if type.is_block() else ()
        if (known := of_tensors.get(shape)) is not None:
            vars(self).update(known, handle=handle, type=type, dtype=type.scalar)
            return
        make_tensor(self, handle, type)
        own = {"handle", "type", "dtype"}
        of_tensors[shape] = {name: one for name, one in vars(self).items() if name not in own}

    def block_of_known_shape(self: Any, element_ty: Any, shape: Any) -> None:
        key = (element_ty.name, *shape)
        if (known := of_blocks.get(key)) is not None:
            vars(self).update(known, element_ty=element_ty)
            return
        make_block(self, element_ty, shape)
        if all(isinstance(size, int) for size in key[1:]):  # they may be constexpr
            of_blocks[key] = {name: one for name, one in vars(self).items() if name != "element_ty"}

    tl.tensor.__init__ = tensor_of_known_shape
    tl.block_type.__init__ = block_of_known_shape
