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
_CODER = (
    "<tool_call>\n<function={{ call.function.name }}>\n"
    "{% for name, value in call.function.arguments | items %}<parameter={{ name }}>\n"
    "{{ value if value is string else value | tojson }}\n</parameter>\n{% endfor %}"
    "</function>\n</tool_call>"
)
_V3 = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{{ call.type + '<｜tool▁sep｜>' + call.function.name +"
    " '\n```json\n' + call['function']['arguments'] + '\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>' }}"
)
_V31 = (
    "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{{ call.function.name }}<｜tool▁sep｜>"
    "{{ call['function']['arguments'] | tojson }}<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
)
_NAMED = "[TOOL_CALLS]{{ call.function.name }}[ARGS]{{ call.function.arguments | tojson }}"


def _template(call: str, tools: str | None) -> str:
    """tools: what comes before the list of them; None if the template does not list them."""
    listed = "{% if tools %}" + tools + "{{ tools | tojson }}{% endif %}" if tools else ""
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
    "qwen-coder": (_template(_CODER, "# Tools: "), {}),
    "deepseek-v3": (_template(_V3, None), {}),
    "deepseek-v31": (_template(_V31, "## Tools: "), {}),
    "deepseek-v31-special": (
        _template(_V31, None),
        {"<|user|>": "<｜tool▁calls▁begin｜>", "<|system|>": "<｜tool▁sep｜>"},
    ),
}


def tool_tokenizer(style: str, folder: Path) -> Path:
    """Write a byte-level tokenizer with the special tokens and the chat template of a style."""
    folder.mkdir(parents=True, exist_ok=True)
    tiny_tokenizer(folder)
    restyle(folder, *STYLES[style])
    return folder


def tool_model(style: str, folder: Path) -> Path:
    """Write a tiny random Llama with such a tokenizer; returns its folder."""
    tiny_model("llama", folder)
    restyle(folder, *STYLES[style])
    return folder


def restyle(folder: Path, template: str, renamed: dict[str, str]) -> None:
    """Give a model another chat template, and other names to special tokens."""
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
