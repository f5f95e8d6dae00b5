"""Mutants of layout: strides that are mixed up, numbers that are too narrow, arguments in another order.

What a kernel gets wrong most often is where its numbers lie, and tests on contiguous tensors of small
sizes do not see it. These mutants count apart from those of `mutants.py`, and a lab must kill 95% of
them too. In Python, Triton's and PyTorch's:

  q_stride                        another tensor's stride, another dimension's, the width of a row
  q_strides[0]                    q_strides[1], k_strides[0]
  x.stride(0)                     x.stride(1), residual.stride(0), x.shape[-1]
  x.stride()                      residual.stride(), x.contiguous().stride()
  x.to(tl.int64), tl.cast(..)     x
  tl.zeros(.., tl.float32)        tl.float16
  x.to(tl.float32), x.float()     x, wherever the statement has it
  x.contiguous()                  x
  kernel[grid](q, k)              kernel[grid](k, q)

`layout_mutants_of` has those of CUDA C++ from `cuda_layout.py`.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from grader.selfcheck.cuda_layout import layout_mutants_of_cuda
from grader.selfcheck.mutant import LAYOUT, Mutant
from grader.selfcheck.strides import MOST, is_stride, others_for, width_among
from grader.selfcheck.trees import (
    Change,
    changed,
    functions_at,
    put,
    sources_with_tasks,
    untouched,
)
from yaie.curriculum.manifest import Lab
from yaie.curriculum.progress import CUDA_SOURCES

FAR = {"tl.int64", "torch.int64", "torch.long"}
"""To which an index is cast lest its product with a stride overflows."""
EXACT = {"tl.float32", "torch.float32", "torch.float64"}
"""To which numbers are cast lest they lose digits."""
NARROWER = {
    "tl.int64": "tl.int32",
    "tl.float32": "tl.float16",
    "torch.int64": "torch.int32",
    "torch.float64": "torch.float32",
    "torch.float32": "torch.float16",
}
MAKES = re.compile(r"(tl|torch)\.(zeros|full|ones|empty)$|\.new_(zeros|full|empty|ones)$|\.sum$")
Edit = tuple[str, Change]


def layout_mutants_of(folder: Path, lab: Lab) -> Iterator[Mutant]:
    """Every mutant of layout of a lab's reference, file by file."""
    for path, text, task_at in sources_with_tasks(folder):
        of_file = (
            layout_mutants_of_cuda if path.suffix in CUDA_SOURCES else layout_mutants_of_python
        )
        yield from of_file(text, path.relative_to(folder).as_posix(), task_at)


def layout_mutants_of_python(text: str, file: str, task_at: dict[int, str]) -> Iterator[Mutant]:
    tree = ast.parse(text)
    lines, functions, at_hand = text.splitlines(), functions_at(tree), _at_hand(tree)
    seen: Counter[tuple[str, str, str]] = Counter()
    made = set()
    for index, node in enumerate(ast.walk(tree)):
        number = getattr(node, "lineno", 0) - 1
        if number not in task_at or index in untouched(tree):
            continue
        for change, apply in _edits(node, at_hand.get(number, _AtHand())):
            source = changed(tree, index, apply)
            if source in made:
                continue
            made.add(source)
            function, line = functions.get(number, ""), lines[number].strip()
            label = f"{LAYOUT}{change}"
            seen[function, line, label] += 1
            if (count := seen[function, line, label]) > 1:
                label = f"{label} ({count})"
            yield Mutant(file, function, line, label, task_at[number], source)


@dataclass(frozen=True, slots=True)
class _AtHand:
    """What a function names: parameters first, then what it reads. tensors: those used as such."""

    names: tuple[str, ...] = ()
    tensors: tuple[str, ...] = ()


def _at_hand(tree: ast.AST) -> dict[int, _AtHand]:
    """By line, of the innermost function around it."""
    found: dict[int, _AtHand] = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        arguments = node.args.args
        parts = list(ast.walk(node))
        names = [argument.arg for argument in arguments]
        names += [part.id for part in parts if isinstance(part, ast.Name)]
        tensors = [
            a.arg for a in arguments if a.annotation and ast.unparse(a.annotation) == "Tensor"
        ]
        tensors += [
            part.value.id
            for part in parts
            if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name)
            if part.attr in ("stride", "shape", "dtype")
        ]
        here = _AtHand(tuple(dict.fromkeys(names)), tuple(dict.fromkeys(tensors)))
        for line in range(node.lineno - 1, node.end_lineno or node.lineno):
            found[line] = here
    return found


def _edits(node: ast.AST, at_hand: _AtHand) -> Iterator[Edit]:
    """What may be changed in a node: (in words, how)."""
    match node:
        case ast.Name(id=name, ctx=ast.Load()) if is_stride(name):
            for other in others_for(name, at_hand.names):
                yield f"{name} -> {other}", _set("id", other)
            if (width := width_among(at_hand.names)) and not name.endswith("s"):
                yield f"{name} -> {width}", _set("id", width)
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(axis))) if (
            is_stride(name)
        ):
            near = axis + 1 if axis < 1 else axis - 1
            yield f"{name}[{axis}] -> [{near}]", _set("slice", ast.Constant(near))
        case ast.Call(func=ast.Attribute(value=tensor, attr="stride"), args=[axis_node]):
            yield from _other_strides(tensor, axis_node, at_hand)
        case ast.Call(func=ast.Attribute(value=tensor, attr="stride"), args=[]):
            yield from _other_tuples(tensor, at_hand)
        case ast.Call(func=ast.Attribute(value=value, attr="contiguous"), args=[]):
            yield "drop .contiguous()", _replace_by(ast.unparse(value))
        case ast.Call(func=ast.Attribute(value=value, attr="to"), args=[dtype]) if (
            ast.unparse(dtype) in FAR
        ):
            yield f"drop .to({ast.unparse(dtype)})", _replace_by(ast.unparse(value))
        case ast.Call(func=ast.Attribute(attr="cast"), args=[value, dtype]) if (
            ast.unparse(dtype) in FAR
        ):
            yield f"drop the cast to {ast.unparse(dtype)}", _replace_by(ast.unparse(value))
        case ast.Assign() | ast.AugAssign() | ast.Return() | ast.Expr():
            if casts := [ast.unparse(part) for part in ast.walk(node) if _makes_exact(part)]:
                yield f"drop {_method(casts[0])}", _drop_casts
        case ast.Call() if MAKES.search(ast.unparse(node.func)):
            yield from _narrowed(node)
        case ast.Call(func=ast.Subscript()):
            yield from _swapped(node, at_hand)


def _other_strides(tensor: ast.expr, axis: ast.expr, at_hand: _AtHand) -> Iterator[Edit]:
    """Of x.stride(0): another dimension's, another tensor's, and the width of a row."""
    own, told = ast.unparse(tensor), f"{ast.unparse(tensor)}.stride({ast.unparse(axis)})"
    value = ast.literal_eval(axis) if isinstance(axis, ast.Constant | ast.UnaryOp) else None
    if isinstance(value, int):
        near = value + 1 if value in (0, -2, -3) else value - 1
        yield f"{told} -> stride({near})", _replace_by(f"{own}.stride({near})")
    for name in [other for other in at_hand.tensors if other != own][:MOST]:
        new = f"{name}.stride({ast.unparse(axis)})"
        yield f"{told} -> {new}", _replace_by(new)
    yield f"{told} -> {own}.shape[-1]", _replace_by(f"{own}.shape[-1]")


def _other_tuples(tensor: ast.expr, at_hand: _AtHand) -> Iterator[Edit]:
    """Of x.stride(): another tensor's, and what a contiguous tensor's would be."""
    own = ast.unparse(tensor)
    yield f"{own}.stride() -> as if contiguous", _replace_by(f"{own}.contiguous().stride()")
    for name in [other for other in at_hand.tensors if other != own][:MOST]:
        yield f"{own}.stride() -> {name}.stride()", _replace_by(f"{name}.stride()")


def _makes_exact(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(attr="float" | "double"), args=[]):
            return True
        case ast.Call(func=ast.Attribute(attr="to"), args=[dtype]):
            return ast.unparse(dtype) in EXACT
    return False


def _method(cast: str) -> str:
    return cast[cast.rindex("." if cast.endswith("()") else ".to(") :]


def _drop_casts(node: ast.AST, whole: ast.AST) -> None:
    """All of a statement at once: what is left of two that are multiplied makes the other exact."""
    while part := next((part for part in ast.walk(node) if _makes_exact(part)), None):
        assert isinstance(part, ast.Call)
        assert isinstance(part.func, ast.Attribute)
        put(part, part.func.value, node)


def _narrowed(node: ast.Call) -> Iterator[Edit]:
    """An accumulator, or what is made for results, in a narrower dtype."""
    for part in [*node.args, *(keyword.value for keyword in node.keywords)]:
        if narrower := NARROWER.get(ast.unparse(part)):
            new = ast.parse(narrower, mode="eval").body
            yield f"{ast.unparse(part)} -> {narrower}", _replace(ast.unparse(part), new)


def _swapped(node: ast.Call, at_hand: _AtHand) -> Iterator[Edit]:
    """Two arguments of a launch that stand side by side and are of one kind."""
    kinds = [_kind(argument, at_hand) for argument in node.args]
    for first, (one, other) in enumerate(pairwise(node.args)):
        told, with_ = ast.unparse(one), ast.unparse(other)
        if kinds[first] == kinds[first + 1] and kinds[first] and told != with_:
            yield f"swap {told} and {with_}", _swap(first)


def _kind(argument: ast.expr, at_hand: _AtHand) -> str:
    """What an argument of a launch is, as far as it can be told: "" if not at all."""
    text = ast.unparse(argument)
    if "stride" in text:
        return "stride"
    if text in at_hand.tensors:
        return "tensor"
    return "number" if ".shape[" in text or "len(" in text else ""


def _set(field: str, value: object) -> Change:
    return lambda node, whole: setattr(node, field, value)


def _swap(first: int) -> Change:
    def apply(node: ast.AST, whole: ast.AST) -> None:
        assert isinstance(node, ast.Call)
        node.args[first : first + 2] = reversed(node.args[first : first + 2])

    return apply


def _replace_by(text: str) -> Change:
    """Put an expression in the node's place."""
    return lambda node, whole: put(node, ast.parse(text, mode="eval").body, whole)


def _replace(old: str, new: ast.expr) -> Change:
    """Put an expression in the place of the node's argument that reads `old`."""

    def apply(node: ast.AST, whole: ast.AST) -> None:
        assert isinstance(node, ast.Call)
        parts = [*node.args, *(keyword.value for keyword in node.keywords)]
        put(next(part for part in parts if ast.unparse(part) == old), new, whole)

    return apply
