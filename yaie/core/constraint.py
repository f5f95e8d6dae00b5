"""What one request does not let the model say: words outside of a language, or too long a thought."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Constraint:
    """A language that the output must belong to.

    kind: "json_object" (any JSON object, `text` is ""), "json_schema" (`text` is the schema, as JSON),
        "lark" (`text` is a grammar in the dialect of llguidance) or "gbnf" (in llama.cpp's). "tools"
        never reaches the engine: it is what `yaie.server.tools.ToolFormat.grammar` is given, as JSON,
        and becomes "lark".
    """

    kind: Literal["json_object", "json_schema", "lark", "gbnf", "tools"]
    text: str = ""


@dataclass(frozen=True, slots=True)
class ThoughtLimit:
    """How long a model may think before it answers.

    num_tokens: between the two tags. begin, end: the tags as they are written. is_open: the prompt ends
    with the first of them.
    """

    num_tokens: int
    begin: str
    end: str
    is_open: bool = False
