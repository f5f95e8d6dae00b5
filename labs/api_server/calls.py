"""Calls of tools, as a client repeats them from an earlier answer. Given."""

import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from yaie.core.fields import Fields, Integer, Text, bounded, plain, wrong


def _is_object(text: str) -> str:
    """Checked here, because chat templates want the object itself."""
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise wrong("It must be a JSON object, written as a string.")
    plain(arguments)
    return text


class FunctionCall(Fields):
    name: Text
    arguments: Annotated[Text, AfterValidator(_is_object)]


class ToolCall(Fields):
    """A call that an earlier answer made."""

    id: Text
    type: Literal["function"] = "function"
    function: FunctionCall
    index: Integer | None = bounded("index", "Of a streamed call; has no effect.")

    def for_template(self) -> dict[str, Any]:
        """The arguments as an object, which is what the templates of transformers expect."""
        arguments = json.loads(self.function.arguments)
        function = {"name": self.function.name, "arguments": arguments}
        return {"id": self.id, "type": self.type, "function": function}
