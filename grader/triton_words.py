"""What Triton's compiler complains of, in a learner's words: the construct, and what to write instead.

The compiler names nodes of Python's syntax tree and classes of its own. Most entries here are kinds
of code that run in the interpreter and do not compile.
"""

import ast
import builtins
import re
from dataclasses import dataclass
from typing import NamedTuple

IN_KERNEL = (
    "The interpreter runs a kernel as Python; a GPU runs the code that Triton compiles from it."
)
AT_LAUNCH = "The interpreter does not check how a kernel is launched; the compiler does."
LIST_METHODS = "|".join(name for name in dir(list) if not name.startswith("_"))


class Words(NamedTuple):
    sentence: str
    advice: str


@dataclass(frozen=True, slots=True)
class _Complaint:
    """says: a regular expression for "NODE: MESSAGE", the node that the compiler stood at and what it
    said. sentence, advice: with the groups of the match in braces."""

    says: str
    sentence: str
    advice: str


COMPLAINTS = (
    _Complaint(
        "^Break:",
        "`break` is not supported in a compiled loop.",
        "Put the condition into a `while`, or let the loop run on and mask what no longer counts "
        "with tl.where.",
    ),
    _Complaint(
        "^Continue:",
        "`continue` is not supported in a compiled loop.",
        "Turn the condition around and put the rest of the body below that `if`, or mask with "
        "tl.where.",
    ),
    _Complaint(
        "Cannot have `return` statements inside|loop body should only have one block",
        "`return` inside a loop is not supported.",
        "Keep the result in a variable and return it behind the loop. A `while` ends a loop early.",
    ),
    _Complaint(
        "^JoinedStr:",
        "an f-string holds a number that is known only when the kernel runs.",
        'Pass the number as an argument of its own: tl.device_print("n", n).',
    ),
    _Complaint(
        "simultaneous multiple comparison",
        "two comparisons are chained.",
        "Write each in parentheses and join them: (0 <= x) & (x < n).",
    ),
    _Complaint(
        "comparison operator|'(Not)?In' object",
        "`in` is not supported.",
        "Compare with each value: (n == 1) | (n == 2).",
    ),
    _Complaint(
        # A list is a tuple to the compiler. Triton up to 3.6 looks its methods up in a list of names.
        "^(ListComp|Dict|Set|GeneratorExp|DictComp|SetComp):|^Attribute:.*list.index"
        rf"|'tuple' object has no attribute '?({LIST_METHODS})\b|'({LIST_METHODS})' is not in list",
        "Python's lists, dictionaries and comprehensions are not supported.",
        "Give each value a name of its own, sum values up while a loop runs, or make a tensor with "
        "tl.arange; tl.static_range unrolls a loop over constants.",
    ),
    _Complaint(
        "^Lambda:|nested function|StopIteration",
        "a function is defined inside a kernel.",
        "Define it outside, with @triton.jit above it.",
    ),
    _Complaint(
        r"Loop-carried variable (?P<name>\w+) has initial type (?P<first>.+?) but is re-assigned to "
        r"(?P<then>.+?) in loop",
        "{name} is {first} before the loop and {then} at the end of its body.",
        "A variable keeps its dtype and shape through a loop. Start {name} with what the loop makes "
        "of it, such as tl.zeros([...], tl.float32), or convert with .to() inside.",
    ),
    _Complaint(
        r"Loop carried variable (?P<name>\w+) is not a triton value",
        "{name} is no number and no tensor before the loop.",
        "A variable keeps its dtype and shape through a loop. Start {name} with what the loop makes "
        "of it, such as tl.zeros([...], tl.float32).",
    ),
    _Complaint(
        r"(?:initial value for `(?P<name>\w+)` is of type|Mismatched type for (?P<other>\w+) between "
        r"then block) \(?(?P<first>.+?)(?:, but the \w+ block redefines it as|\) and else block \()"
        r" ?(?P<then>[^)'\"]+)",
        "{name}{other} is {first} on one way through an `if` and {then} on the other.",
        "A variable has one dtype and one shape behind an `if`. {ways}",
    ),
    _Complaint(
        r"Ternary expression .*inconsistent types (?P<first>.+) and (?P<then>[^)'\"]+)",
        "the values of `a if ... else b` are {first} and {then}.",
        "Both need the same dtype and shape: write 1.0 and not 1 beside a float.",
    ),
    _Complaint(
        "more than one value is ambiguous|operand #0 must be 1-bit signless integer",
        "a condition is a tensor of several values.",
        "An `if` or a `while` decides for the whole program. Reduce the tensor to one value (tl.max, "
        "tl.sum), or choose lane by lane with tl.where.",
    ),
    _Complaint(
        "Input shapes should have",
        "a side of a tile in tl.dot is too short: the side that is summed over needs 16.",
        "Fill the tile up to 16 with zeros, or multiply and sum with tl.sum.",
    ),
    _Complaint(
        "must be a power of 2(?!.*num_warps)",
        "a side of a tile is not a power of two.",
        "Use the next power of two (triton.next_power_of_2 on the host) and mask the lanes past the "
        "end.",
    ),
    _Complaint(
        "must be of type tl.constexpr|must have type `constexpr",
        "the shape of a tile depends on a number that is known only when the kernel runs.",
        "Make the parameter a tl.constexpr, and mask the lanes past the real number.",
    ),
    _Complaint(
        r"Cannot access global variable (?P<name>\w+)",
        "it uses the global name {name}, which is neither a tl.constexpr nor a kernel function.",
        "Write {name} = tl.constexpr(...) for a number, and @triton.jit above a function.",
    ),
    _Complaint(
        rf"NameError\(.(?P<name>{'|'.join(filter(str.islower, dir(builtins)))}) is not defined",
        "Python's `{name}` is not supported.",
        "Use what tl has for it (tl.abs, tl.sum, tl.static_range, ...), or write it out.",
    ),
    _Complaint(
        r"NameError\(.(?P<name>\w+) is not defined",
        "{name} has no value on every way to this line.",
        "A variable that is first set inside an `if` or a loop exists only there. Give {name} a value "
        "of the same dtype and shape before it.",
    ),
    _Complaint(
        r"Return type mismatch: (?P<first>.+?) and (?P<then>.+?)\.",
        "a function returns {first} at one place and {then} at another.",
        "All its returns need the same dtypes and shapes: convert with .to() before them.",
    ),
    _Complaint(
        "__setitem__ is not supported|unsupported tensor index",
        "one element of a tensor is read or set by its index.",
        "The elements of a tile are spread over threads. Choose them with a mask: tl.where, and "
        "tl.sum over it for one value.",
    ),
    _Complaint(
        "^While:.*'constexpr' object has no attribute 'handle'",
        "the condition of a `while` is a constant.",
        "Write the condition on which the loop goes on, of a variable that its body changes.",
    ),
    _Complaint(
        "^For:.*no attribute 'func'|Only `range` and `static_range`",
        "a `for` goes over something that is not a range.",
        "Use range, tl.range, or tl.static_range to unroll it.",
    ),
    _Complaint(
        "'(str|torch.dtype)' object has no attribute 'scalar'",
        "a dtype is not one of Triton's.",
        "Write tl.float32 and its like, or pointer.dtype.element_ty.",
    ),
    _Complaint(
        "no attribute .?get_bf16",
        "a bfloat16 number meets a number of Python's.",
        "The interpreter has no arithmetic of the two. Convert with .to(tl.float32) first: sums and "
        "products are made in float32 anyway.",
    ),
    _Complaint("__r?pow__", "`**` is not supported for tensors.", "Multiply, or use tl.exp2."),
    _Complaint("'MatMult' object", "`@` is not supported.", "The product of two tiles is tl.dot."),
    _Complaint(
        "must be real number, not tensor|not 'tensor'|must be Tensor, not tensor|has no len"
        "|'NoneType' object has no attribute 'to_tensor'",
        "a function of Python, NumPy or torch gets a value that exists only on the GPU.",
        "Use tl's function (tl.exp, tl.sqrt, ...); x.to(tl.float32) converts.",
    ),
    _Complaint(
        r"Keyword argument (?P<name>\w+) was specified but unrecognised",
        "the launch has an argument {name}, which is no parameter of the kernel and no option.",
        "The options are num_warps, num_stages and a few others.",
    ),
    _Complaint(
        "num_warps must be a power of 2",
        "num_warps is not a power of two.",
        "Use 1, 2, 4, 8 or 16.",
    ),
    _Complaint(
        r"unsupported AST node type: (?P<name>\w+)",
        "this kind of Python ({name}) is not supported.",
        "A kernel is made of assignments, arithmetic, `if`, `for` over a range, and `while`.",
    ),
)
"""The first that fits counts."""


def explain(node: ast.AST | None, message: str, *, in_kernel: bool = True) -> Words:
    """What is wrong and what to write instead. node: where the compiler stood, if that is known. What no
    entry knows is said in the compiler's own words."""
    message = " ".join(message.split())
    told = f"{type(node).__name__}: {message}" if node is not None else message
    general = IN_KERNEL if in_kernel else AT_LAUNCH
    for complaint in COMPLAINTS:
        if found := re.search(complaint.says, told):
            groups = {name: text or "" for name, text in found.groupdict().items()}
            groups |= {n: _type(groups[n]) for n in ("first", "then") if n in groups}
            if "other" in groups:
                groups["ways"] = _ways(groups["name"] or groups["other"], groups, node)
            filled = (text.format_map(groups) for text in (complaint.sentence, complaint.advice))
            return Words(*filled)._replace(
                advice=f"{general} {complaint.advice.format_map(groups)}"
            )
    return Words(f"Triton says: {message}", general)


def _ways(name: str, types: dict[str, str], node: ast.AST | None) -> str:
    """Where a variable gets another type, and what to write instead."""
    first, then = types["first"], types["then"]
    tiles = [text for text in (first, then) if text.startswith("a tile")]
    dtypes = {text.split()[-1] for text in (first, then)}
    sets = [
        ast.unparse(one)
        for one in ast.walk(node or ast.Pass())
        if isinstance(one, ast.Assign | ast.AugAssign)
        and any(isinstance(n, ast.Name) and n.id == name for n in _targets(one))
    ]
    where = f"In this one {name} is set by `{'` and `'.join(sets[:2])}`. " if sets else ""
    if len(tiles) == 1 or (tiles and first.split("]")[0] != then.split("]")[0]):
        return f"{where}Before the `if`, start {name} with the tile's shape, as tl.zeros makes it."
    if any("fp" in dtype or "bf" in dtype for dtype in dtypes) and any("int" in d for d in dtypes):
        return f"{where}Write 0.0 and not 0 for a float."
    return (
        f"{where}Convert with .to(): all of its values must be {' or all '.join(sorted(dtypes))}."
    )


def _targets(assignment: ast.Assign | ast.AugAssign) -> list[ast.AST]:
    targets = assignment.targets if isinstance(assignment, ast.Assign) else [assignment.target]
    return [node for target in targets for node in ast.walk(target)]


def advice(said: str) -> str:
    """What to write instead, of an error that the interpreter raised; "" if no entry knows it."""
    fitting = (complaint for complaint in COMPLAINTS if re.search(complaint.says, said))
    return next((one.advice for one in fitting if "{" not in one.advice), "")


def _type(text: str) -> str:
    """<['16', '64'], fp32> and fp32[constexpr[16], constexpr[64]] as "a tile [16, 64] of fp32"; int32[]
    as "a scalar int32"."""
    plain = re.sub(r"constexpr\[(\w+)\]|'", r"\1", text.strip())
    tile = re.fullmatch(r"<\[(.+)\], ?(\w+)>", plain)
    shape, dtype = tile.groups() if tile else ("", plain.removesuffix("[]"))
    if suffixed := re.fullmatch(r"(\w+)\[(.+)\]", dtype):
        dtype, shape = suffixed.groups()
    return f"a tile [{shape}] of {dtype}" if shape else f"a scalar {dtype}"
