"""Tiny random models whose chat templates know of tools, one for each form in which calls are written.

The templates have what real ones have: where tools are listed, how calls of earlier turns look (their
arguments are an object), and a message of a tool.
"""

import json
from pathlib import Path

from tests.models.tiny import tiny_model, tiny_tokenizer

_TURNS = (
    "{% for m in messages %}<|end|>{{ m.role }}: {{ m.content }}"
    "{% for call in m.tool_calls or [] %}@CALL@{% endfor %}{% endfor %}"
)
_HERMES = "<tool_call>{{ call.function | tojson }}</tool_call>"
_LLAMA = (
    '{"name": "{{ call.function.name }}", "parameters": {{ call.function.arguments | tojson }}}'
)
_MISTRAL = "[TOOL_CALLS] [{{ call.function | tojson }}]"
_NAMED = "[TOOL_CALLS]{{ call.function.name }}[ARGS]{{ call.function.arguments | tojson }}"


def _template(call: str, tools: str) -> str:
    listed = "{% if tools %}" + tools + "{{ tools | tojson }}{% endif %}"
    return (
        listed + _TURNS.replace("@CALL@", call) + "{% if add_generation_prompt %}<|end|>{% endif %}"
    )


# name -> (template, special tokens of the tokenizer that are renamed)
STYLES = {
    "hermes": (_template(_HERMES, "Tools: "), {}),
    "hermes-special": (
        _template(_HERMES, "Tools: "),
        {"<|user|>": "<tool_call>", "<|system|>": "</tool_call>"},
    ),
    "llama3": (
        _template(_LLAMA, 'Answer as {"name": function name, "parameters": values}. '),
        {"<|user|>": "<|python_tag|>"},
    ),
    "mistral": (_template(_MISTRAL, "[AVAILABLE_TOOLS]"), {"<|user|>": "[TOOL_CALLS]"}),
    "mistral-named": (
        _template(_NAMED, "[AVAILABLE_TOOLS]"),
        {"<|user|>": "[TOOL_CALLS]", "<|system|>": "[ARGS]"},
    ),
}


def tool_tokenizer(style: str, folder: Path) -> Path:
    """Write a byte-level tokenizer with the special tokens and the chat template of a style."""
    folder.mkdir(parents=True, exist_ok=True)
    tiny_tokenizer(folder)
    _change(folder, style)
    return folder


def tool_model(style: str, folder: Path) -> Path:
    """Write a tiny random Llama with such a tokenizer; returns its folder."""
    tiny_model("llama", folder)
    _change(folder, style)
    return folder


def _change(folder: Path, style: str) -> None:
    template, renamed = STYLES[style]
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text("utf-8"))
    for old, new in renamed.items():
        vocabulary = tokenizer["model"]["vocab"]
        vocabulary[new] = vocabulary.pop(old)
        for token in tokenizer["added_tokens"]:
            if token["content"] == old:
                token["content"] = new
    path.write_text(json.dumps(tokenizer), "utf-8")
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**settings, "chat_template": template}), "utf-8")
