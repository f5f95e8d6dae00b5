"""Calls of tools: which form a model writes them in, how they are read and how they are made sure of.

`parser.py` reads calls as they come, `formats.py` knows the forms, `json_scanner.py` where JSON ends.
`yaie.server.extras.tool_calls` puts what was read into OpenAI's shape.
"""

from typing import Any

from yaie.server.tools.formats import (
    HermesFormat,
    Llama3Format,
    MistralFormat,
    MistralNamedFormat,
    SpecialId,
    ToolFormat,
)

__all__ = ["ToolFormat", "choose_format", "with_names_of_tools"]


def choose_format(parser: str, template: str, special_id: SpecialId) -> ToolFormat | None:
    """The form in which a model writes calls; None if it cannot be told about tools.

    parser: a setting of `ServerSettings`. "auto" goes by the markers in the chat template.
    template: the model's chat template. One that does not mention tools would drop them without a word.
    special_id: of the model's tokenizer.
    """
    if "tools" not in template:
        return None
    match _guessed(template) if parser == "auto" else parser:
        case "hermes":
            return HermesFormat(special_id)
        case "llama3":
            return Llama3Format(special_id)
        case "mistral":
            return (MistralNamedFormat if "[ARGS]" in template else MistralFormat)(special_id)
        case _:
            return None


def with_names_of_tools(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages; those that answer a call have the name of its function, which some templates ask
    for and OpenAI's clients leave out."""
    names: dict[str, str] = {}
    named = []
    for message in messages:
        for call in message.get("tool_calls", []):
            names[call["id"]] = call["function"]["name"]
        if message.get("role") == "tool" and message.get("tool_call_id") in names:
            message = {"name": names[message["tool_call_id"]], **message}
        named.append(message)
    return named


def _guessed(template: str) -> str:
    if "[TOOL_CALLS]" in template:
        return "mistral"
    if "<tool_call>" in template:  # of Qwen3-Coder too, which writes XML behind it
        return "none" if "<function=" in template else "hermes"
    is_llama = "<|python_tag|>" in template or '{"name": function name, "parameters"' in template
    return "llama3" if is_llama else "none"
