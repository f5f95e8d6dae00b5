"""Numbers with units, and the expressions that compute them: `pool // (chat * kv)`.

An expression is arithmetic in Python's own notation. It is evaluated exactly, as fractions, and each
value carries its units: a sum of bytes and seconds is a fault and not an answer.
"""

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

Number = Fraction


class QuantityError(ValueError):
    """An expression does not make sense. The message says which and why."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value in base units. units: the power of each base unit, without zeros."""

    value: Number
    units: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{float(self.value):g} {unit_name(self.units) or 'of no unit'}"


def _of(base: str, factor: int | Fraction = 1) -> Quantity:
    return Quantity(Fraction(factor), {base: 1})


UNITS: dict[str, Quantity] = {
    **{name: _of("byte", 1000**power) for power, name in enumerate(("B", "KB", "MB", "GB", "TB"))},
    **{name: _of("byte", 1024**power) for power, name in enumerate(("KiB", "MiB", "GiB"), 1)},
    "bit": _of("byte", Fraction(1, 8)),
    "Gbit": _of("byte", 10**9 // 8),
    "byte": _of("byte"),
    "token": _of("token"),
    "s": _of("second"),
    "ms": _of("second", Fraction(1, 10**3)),
    "us": _of("second", Fraction(1, 10**6)),
    "ns": _of("second", Fraction(1, 10**9)),
    "minute": _of("second", 60),
    "hour": _of("second", 3600),
    "FLOP": _of("FLOP"),
    "GFLOP": _of("FLOP", 10**9),
    "TFLOP": _of("FLOP", 10**12),
    "cycle": _of("cycle"),
    "GHz": Quantity(Fraction(10**9), {"cycle": 1, "second": -1}),
    "dollar": _of("dollar"),
    "percent": Quantity(Fraction(1, 100)),
}
"""What an expression may write behind a number: `40*GB`, `3*token/s`."""


def unit_name(units: Mapping[str, int]) -> str:
    """The base units as a text: "byte token^-1"."""
    return " ".join(
        f"{name}^{power}" if power != 1 else name for name, power in sorted(units.items())
    )


def evaluate(expression: str, names: Mapping[str, Quantity]) -> Quantity:
    """What the expression comes to. names: "pool", and "qwen3_8b.layers". Raises QuantityError."""
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        return _value(tree.body, names)
    except (SyntaxError, QuantityError, ZeroDivisionError) as error:
        raise QuantityError(f"{expression!r}: {error}") from None


def _value(node: ast.expr, names: Mapping[str, Quantity]) -> Quantity:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return Quantity(Fraction(str(number)))
        case ast.Name() | ast.Attribute():
            return _named(dotted(node), names)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inner = _value(operand, names)
            return Quantity(-inner.value, inner.units)
        case ast.BinOp(left=left, op=operator, right=right):
            return _combined(operator, _value(left, names), _value(right, names))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _called(name, [_value(one, names) for one in arguments])
    raise QuantityError(f"{ast.unparse(node)} is not arithmetic")


def dotted(node: ast.expr) -> str:
    """The name that a node stands for: "qwen3_8b.layers"."""
    return ast.unparse(node)


def _named(name: str, names: Mapping[str, Quantity]) -> Quantity:
    found = names.get(name) or UNITS.get(name)
    if found is None:
        raise QuantityError(f"there is no {name}")
    return found


def _combined(operator: ast.operator, left: Quantity, right: Quantity) -> Quantity:
    match operator:
        case ast.Add() | ast.Sub():
            _require_alike(left, right)
            sign = 1 if isinstance(operator, ast.Add) else -1
            return Quantity(left.value + sign * right.value, left.units)
        case ast.Mult():
            return Quantity(left.value * right.value, _powers(left, right, 1))
        case ast.Div():
            return Quantity(left.value / right.value, _powers(left, right, -1))
        case ast.FloorDiv():
            return _called("floor", [_combined(ast.Div(), left, right)])
        case ast.Pow() if not right.units:
            return _power(left, right.value)
    raise QuantityError(f"{type(operator).__name__} of {left} and {right}")


def _powers(left: Quantity, right: Quantity, sign: int) -> dict[str, int]:
    powers = {
        name: left.units.get(name, 0) + sign * right.units.get(name, 0)
        for name in left.units.keys() | right.units.keys()
    }
    return {name: power for name, power in powers.items() if power}


def _power(base: Quantity, exponent: Number) -> Quantity:
    if exponent.denominator == 1:
        whole = int(exponent)
        return Quantity(
            base.value**whole, {name: power * whole for name, power in base.units.items() if whole}
        )
    if base.units:
        raise QuantityError(f"a root of {base}")
    return Quantity(Fraction(float(base.value) ** float(exponent)))


def _require_alike(*quantities: Quantity) -> None:
    if len({unit_name(one.units) for one in quantities}) > 1:
        raise QuantityError(" and ".join(map(str, quantities)) + " have different units")


FUNCTIONS: dict[str, Callable[[Number], Number | float]] = {
    "floor": lambda value: Fraction(math.floor(value)),
    "ceil": lambda value: Fraction(math.ceil(value)),
    "log2": lambda value: math.log2(value),
    "ln": lambda value: math.log(value),
    "exp": lambda value: math.exp(value),
}
"""Of one number without a unit."""


def _called(name: str, arguments: list[Quantity]) -> Quantity:
    if name in ("min", "max") and arguments:
        _require_alike(*arguments)
        pick = min if name == "min" else max
        return pick(arguments, key=lambda one: one.value)
    if name == "gcd" and len(arguments) == 2 and not any(one.units for one in arguments):
        return Quantity(Fraction(math.gcd(*(int(one.value) for one in arguments))))
    if name not in FUNCTIONS or len(arguments) != 1:
        raise QuantityError(f"there is no {name}() of {len(arguments)}")
    if arguments[0].units:
        raise QuantityError(f"{name}() of {arguments[0]}: a unit is left over")
    return Quantity(Fraction(FUNCTIONS[name](arguments[0].value)))


def unit_of(expression: str) -> str:
    """The unit that a plain quantity is written in: "GB/s" of `25*GB/s`; empty for anything else."""
    node = ast.parse(expression.strip(), mode="eval").body
    below = ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        below, node = f"/{ast.unparse(node.right)}", node.left
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        above = ast.unparse(node.right)
        if isinstance(node.left, ast.Constant) and above in UNITS:
            return above + below
    return ""


def names_in(expression: str) -> set[str]:
    """The names that an expression uses, without units and functions."""
    found: set[str] = set()

    def walk(node: Any) -> None:
        match node:
            case ast.Name() | ast.Attribute():
                found.add(dotted(node))
            case ast.Call(args=arguments):
                for one in arguments:
                    walk(one)
            case _:
                for child in ast.iter_child_nodes(node):
                    walk(child)

    walk(ast.parse(expression.strip(), mode="eval").body)
    return found - UNITS.keys()
