"""What the grader must see in CUDA C++ without a compiler: where functions are, and what is no code."""

import re
from dataclasses import dataclass

NOT_CODE = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.S)
"""Comments, strings and characters, whose braces open and close nothing."""
DECLARES = re.compile(r"\s*(template\s*<.*>\s*)?(struct|class|union|enum|namespace)\b", re.S)
"""How what opens a brace begins if the brace holds declarations."""
CALLED = re.compile(r"([A-Za-z_]\w*)\s*\(")


class BraceError(ValueError):
    """A brace without its partner. line: 0-based."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class Body:
    """A function's body, or a block inside one. Lines are 0-based, both with braces.

    name: of the function, or of whatever else stands before a parenthesis (`if`).
    """

    name: str
    begin: int
    end: int


def without_comments(source: str) -> str:
    """The source with blanks for everything that is no code; every character keeps its place."""
    return NOT_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)


def find_bodies(source: str) -> list[Body]:
    """Every brace that follows a parenthesis, in the order in which they open; not that of a namespace,
    a class or a table. Raises BraceError."""
    bodies: list[Body] = []
    opened: list[tuple[int, str]] = []  # line, name or ""
    line, head = 0, ""
    for character in without_comments(source):
        if character == "{":
            called = None if DECLARES.match(head) else CALLED.search(_after_template(head))
            opened.append((line, called[1] if called else ""))
        elif character == "}":
            if not opened:
                raise BraceError(line, "a } that closes nothing")
            begin, name = opened.pop()
            if name:
                bodies.append(Body(name, begin, line))
        line += character == "\n"
        head = "" if character in "{};" else head + character
    if opened:
        raise BraceError(opened[-1][0], "a { that nothing closes")
    return sorted(bodies, key=lambda body: (body.begin, -body.end))


def _after_template(head: str) -> str:
    """Attributes such as __launch_bounds__(256) stand before the name as well."""
    head = re.sub(r"__(launch_bounds|align|attribute)__\s*\(+[^()]*\)+", " ", head)
    return re.sub(r"^\s*template\s*<[^()]*>", "", head)
