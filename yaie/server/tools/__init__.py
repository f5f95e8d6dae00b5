"""Calls of tools: which form a model writes them in, how they are read and how they are made sure of.

`parser.py` reads calls as they come; `formats.py`, `deepseek.py` and `qwen_coder.py` know the forms,
`json_scanner.py` where JSON ends, `xml_values.py` what text between tags is in JSON.
`text_grammars/` has the grammars that clients give for a tool's input.
`yaie.server.extras.reply` puts what was read into OpenAI's shape.
"""

from typing import Any

from yaie.server.tools.deepseek import DeepSeekV3Format, DeepSeekV31Format, lists_tools
from yaie.server.tools.formats import (
    HermesFormat,
    Llama3Format,
    MistralFormat,
    MistralNamedFormat,
    SpecialId,
    ToolFormat,
)
from yaie.server.tools.qwen_coder import QwenCoderFormat

__all__ = ["ToolFormat", "choose_format", "form_in", "with_names_of_tools"]


def choose_format(parser: str, template: str, special_id: SpecialId) -> ToolFormat | None:
    """The form in which a model writes calls; None if it cannot be told about tools.

    parser: a setting of `ServerSettings`. "auto" goes by the markers in the chat template.
    template: the model's chat template. One that does not mention tools would drop them without a word;
        for DeepSeek's models they are put into the system message then.
    special_id: of the model's tokenizer.
    """
    name = form_in(template) if parser == "auto" else parser
    if name == "mistral" and "[ARGS]" in template:
        name = "mistral-named"
    form = _FORMATS.get(name)
    if form is None or not (lists_tools(template) or issubclass(form, DeepSeekV31Format)):
        return None
    return form(special_id, template)


_FORMATS: dict[str, type[ToolFormat]] = {
    "hermes": HermesFormat,
    "qwen3_coder": QwenCoderFormat,
    "llama3": Llama3Format,
    "mistral": MistralFormat,
    "mistral-named": MistralNamedFormat,
    "deepseek_v3": DeepSeekV3Format,
    "deepseek_v31": DeepSeekV31Format,
}


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


def form_in(template: str) -> str:
    """The form in which a chat template writes calls, as `--tool-parser` names it; "none" if it shows in
    no form that is known."""
    if "[TOOL_CALLS]" in template:
        return "mistral"
    if "<｜tool▁call▁begin｜>" in template:
        return "deepseek_v3" if "```json" in template else "deepseek_v31"
    if "<tool_call>" in template:
        return "qwen3_coder" if "<function=" in template else "hermes"
    is_llama = "<|python_tag|>" in template or '{"name": function name, "parameters"' in template
    return "llama3" if is_llama else "none"
