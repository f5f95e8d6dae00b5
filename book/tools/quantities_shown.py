"""Quantities and their expressions as a reader sees them: "40 GB ÷ (8,000 tokens × 147 KB a token)"."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from book.tools.quantities import UNITS, Quantity, QuantityError, dotted, unit_name

SCALES: dict[str, tuple[str, ...]] = {
    "byte": ("TB", "GB", "MB", "KB", "B"),
    "second": ("s", "ms", "us", "ns"),
    "FLOP": ("TFLOP", "GFLOP", "FLOP"),
}
"""The units in which a value is written: the first of which there is at least one."""
WORDS = {"B": "bytes", "byte": "bytes", "token": "tokens", "us": "µs", "cycle": "cycles", "bit": "bits",
         "minute": "minutes", "hour": "hours", "dollar": "dollars", "percent": "%"}  # fmt: skip
ONE = {"second": "s"}
OF_SEVERAL = {
    "min": "the smaller of",
    "max": "the larger of",
    "gcd": "the greatest common divisor of",
}
_LOOSE, _TIGHT = 0, 1
MOST_DIGITS = 4
"""Of a decimal that is written in full: 4.156, and 43.01 for 43.008."""


@dataclass(frozen=True, slots=True)
class Known:
    """What a name stands for. words: behind the number. unit: to write it in; "" for one that fits."""

    value: Quantity
    words: str = ""
    unit: str = ""

    def __str__(self) -> str:
        shown = amount(self.value, self.unit)
        return f"{shown} {self.words}" if self.words else shown


Names = Mapping[str, Known]


def number(value: Fraction) -> str:
    """Short decimals and whole numbers in full, others rounded: "4.156", "43.01", "31.98 billion"."""
    size = abs(value)
    if size >= 10**9:
        return f"{float(value / 10**9):.4g} billion"
    if size >= 10**7:
        return f"{float(value / 10**6):.4g} million"
    if value.denominator == 1:
        return f"{int(value):,}"
    if size >= 1000:
        return f"{float(f'{float(value):.4g}'):,.0f}"
    if 10_000 % value.denominator == 0:
        exact = f"{float(value):.4f}".rstrip("0")
        digits = len(exact.strip("-0.").replace(".", ""))
        return exact if digits <= MOST_DIGITS else f"{float(value):.4g}"
    shown = f"{float(value):.3g}"
    if "e" in shown or shown in ("1", "-1"):  # very small, or all but one
        return f"{float(value):.8f}".rstrip("0") if size < Fraction(1, 2) else f"{float(value):.5f}"
    return shown


def amount(quantity: Quantity, unit: str = "") -> str:
    """The quantity with its unit: "33 chats", "147 KB a token". unit: to write it in, or a label."""
    if unit:
        return f"{number(in_unit(quantity, unit))} {_words(unit)}".replace(" %", "%")
    above = [name for name, power in quantity.units.items() if power == 1]
    below = [name for name, power in quantity.units.items() if power == -1]
    if len(above) > 1 or len(below) > 1 or len(above) + len(below) < len(quantity.units):
        raise QuantityError(f"{quantity}: say in which unit it is written")
    value, words = quantity.value, ""
    if above:
        value, words = _scaled(quantity.value, above[0])
    return number(value) + (f" {words}" if words else "") + _per(below)


def in_unit(quantity: Quantity, unit: str) -> Fraction:
    """How many such units it is: "GB", "token/s", a label of what is counted. Raises QuantityError."""
    wanted = measure(unit)
    if unit_name(wanted.units) != unit_name(quantity.units):
        raise QuantityError(f"{quantity} is not a number of {unit or 'nothing'}")
    return quantity.value / wanted.value


def measure(unit: str) -> Quantity:
    """One such unit; 1 for a label that counts things."""
    above, _, below = unit.partition("/")
    one = UNITS.get(above, Quantity(Fraction(1)))
    if below not in UNITS:
        return one
    powers = dict(one.units)
    for name, power in UNITS[below].units.items():
        powers[name] = powers.get(name, 0) - power
    return Quantity(one.value / UNITS[below].value, powers)


def _words(unit: str) -> str:
    above, _, below = unit.partition("/")
    words = WORDS.get(above, above)
    return f"{words}{_per([below])}" if below else words


def _scaled(value: Fraction, base: str) -> tuple[Fraction, str]:
    if base not in SCALES:
        return value, WORDS.get(base, base)
    if base == "byte" and value.denominator == 1 and abs(value) < 10**6:
        return value, "bytes"
    fitting = (name for name in SCALES[base] if abs(value) >= UNITS[name].value)
    name = next(fitting, SCALES[base][-1])
    return value / UNITS[name].value, WORDS.get(name, name)


def _per(below: list[str]) -> str:
    """Behind a number: "/s", " a token", " an hour"; "/byte" where both are short."""
    if not below:
        return ""
    name = ONE.get(below[0], below[0])
    return f"/{name}" if name in ("s", "second") else f" {'an' if name == 'hour' else 'a'} {name}"


def formula(expression: str, names: Names) -> str:
    """The expression with its numbers."""
    return _shown(ast.parse(expression.strip(), mode="eval").body, names, _LOOSE)


def _shown(node: ast.expr, names: Names, tight: int) -> str:
    match node:
        case ast.Constant(value=value):
            return number(Fraction(str(value)))
        case ast.UnaryOp(operand=operand):
            return f"−{_shown(operand, names, _TIGHT)}"
        case ast.Name() | ast.Attribute():
            return _name(dotted(node), names)
        case ast.BinOp(op=ast.Add() | ast.Sub() as op):
            sign = "+" if isinstance(op, ast.Add) else "−"
            summed = isinstance(node.right, ast.BinOp) and isinstance(
                node.right.op, ast.Add | ast.Sub
            )
            right = _shown(node.right, names, _TIGHT if sign == "−" and summed else _LOOSE)
            return _closed(f"{_shown(node.left, names, _LOOSE)} {sign} {right}", tight)
        case ast.BinOp(op=ast.Pow()):
            power = _shown(node.right, names, _LOOSE)
            return f"{_shown(node.left, names, _TIGHT)}<sup>{power}</sup>"
        case ast.BinOp(op=ast.FloorDiv()):
            words = f"{_product(ast.BinOp(node.left, ast.Div(), node.right), names)}, rounded down"
            return f"({words})" if tight else words
        case ast.BinOp():
            product = _product(node, names)
            return _closed(product, tight and any(sign in product for sign in "×÷"))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _call(name, [_shown(one, names, _LOOSE) for one in arguments], tight)
    raise QuantityError(f"{ast.unparse(node)} cannot be shown")


def _closed(words: str, tight: bool | int) -> str:
    return f"({words})" if tight else words


def _call(name: str, arguments: list[str], tight: int) -> str:
    if name in ("floor", "ceil"):
        return _closed(f"{arguments[0]}, rounded {'down' if name == 'floor' else 'up'}", tight)
    if name in OF_SEVERAL:
        return _closed(f"{OF_SEVERAL[name]} {' and '.join(arguments)}", tight)
    return f"{name}({', '.join(arguments)})"


def _name(name: str, names: Names) -> str:
    if name in UNITS:
        return f"1 {WORDS.get(name, name)}"
    return str(names[name])


def _product(node: ast.expr, names: Names) -> str:
    """A chain of × and ÷, in which a number and the unit behind it are one: "2 bytes a token"."""
    parts: list[str] = []
    for sign, factor in _chain(node):
        unit = isinstance(factor, ast.Name) and factor.id in UNITS
        if unit and parts and isinstance(factor, ast.Name):
            word = WORDS.get(factor.id, factor.id)
            parts[-1] += _attached(parts[-1], sign, factor.id, word)
            continue
        shown = _shown(factor, names, _TIGHT)
        parts.append(f"{sign} {shown}" if parts else shown)
    return " ".join(parts)


def _attached(before: str, sign: str, unit: str, word: str) -> str:
    if sign == "÷":
        return _per([unit])
    single = before.rsplit(" ", 1)[-1] == "1"
    return f" {unit if single and unit in ('byte', 'token') else word}".replace(" %", "%")


def _chain(node: ast.expr) -> list[tuple[str, ast.expr]]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
        sign = "×" if isinstance(node.op, ast.Mult) else "÷"
        if (
            isinstance(node.right, ast.BinOp)
            and sign == "×"
            and isinstance(node.right.op, ast.Mult | ast.Div)
        ):
            return _chain(node.left) + _chain(node.right)
        return [*_chain(node.left), (sign, node.right)]
    return [("×", node)]
