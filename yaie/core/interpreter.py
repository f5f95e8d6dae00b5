"""Repairs to Triton's interpreter, which runs kernels on the CPU (TRITON_INTERPRET=1).

Of Triton 3.4 to 3.6, with NumPy 2.4. Compiled kernels are not touched.
"""

import functools
from typing import Any


@functools.cache
def repair() -> None:
    """Called by every package of Triton kernels; does nothing where kernels are compiled.

    A loop whose bounds are tensors: they have one dimension, and NumPy turns only those without into an
    int. Where one is int64, so are the loop's numbers. `tl.dot` of bfloat16: it multiplies the bit
    patterns, taken for whole numbers. And speed: for every call of a helper it patches the language
    anew, where once a launch is enough; the rest of that is in `interpreter_speed.py`.
    """
    import triton

    if not triton.knobs.runtime.interpret:
        return
    import ast

    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    from yaie.core.interpreter_speed import quicken

    patch_tensor = interpreter._patch_lang_tensor
    create_dot = interpreter.InterpreterBuilder.create_dot

    def patch_tensor_with_index(tensor: Any, scope: Any) -> None:
        patch_tensor(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    def loop_numbers(*bounds: Any, step: Any = 1, **hints: Any) -> Any:
        """For `range` and `tl.range`. The compiler gives a loop's number the widest type of the bounds;
        as an int of Python's it would take that of what it is multiplied with."""
        bounds = bounds if len(bounds) == 3 else (*(0, *bounds)[-2:], step)
        plain = range(*bounds)
        if any(isinstance(bound, tl.tensor) and bound.dtype == tl.int64 for bound in bounds):
            return (wide(number) for number in plain)
        return plain

    def wide(number: int) -> Any:
        handle = interpreter.TensorHandle(np.array([number], dtype=np.int64), tl.int64)
        return tl.tensor(handle, tl.int64)

    def visit_loop(self: Any, node: ast.For) -> ast.For:
        called = node.iter.func if isinstance(node.iter, ast.Call) else None
        match called:
            case ast.Name(id="range") | ast.Attribute(attr="range"):
                vars(node.iter)["func"] = ast.Name(id=loop_numbers.__name__, ctx=ast.Load())
        self.generic_visit(node)
        return node

    def widened(operand: Any) -> Any:
        """bfloat16 is the upper half of a float32."""
        if operand.dtype.scalar != tl.bfloat16:
            return operand
        bits = operand.data.astype(np.uint32) << np.uint32(16)
        return interpreter.TensorHandle(bits.view(np.float32), tl.float32)

    def create_dot_widened(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return create_dot(self, widened(a), widened(b), *rest)

    patch_language = interpreter._patch_lang
    launch = interpreter.GridExecutor.__call__
    patched: set[int] = set()  # modules of triton.language, during a launch
    named: dict[int, set[int]] = {}  # those that a module's names lead to, likewise

    def patch_language_once(function: Any) -> Any:
        space = function.__globals__
        if (found := named.get(id(space))) is None:
            modules = {id(interpreter.tl), id(interpreter.tl.core)}
            found = named[id(space)] = {id(value) for value in space.values()} & modules
        if found <= patched:
            return interpreter._LangPatchScope()
        patched.update(found)
        return patch_language(function)

    def launch_and_forget(self: Any, *args: Any, **kwargs: Any) -> None:
        patched.clear()
        named.clear()
        try:
            launch(self, *args, **kwargs)
        finally:
            patched.clear()

    quicken(interpreter)
    vars(interpreter)[loop_numbers.__name__] = loop_numbers  # a kernel gets all of its names
    interpreter.ASTTransformer.visit_For = visit_loop
    interpreter._patch_lang = patch_language_once
    interpreter.GridExecutor.__call__ = launch_and_forget
    interpreter._patch_lang_tensor = patch_tensor_with_index
    interpreter.InterpreterBuilder.create_dot = create_dot_widened
