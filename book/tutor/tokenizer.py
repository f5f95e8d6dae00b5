"""Trains and writes the tutor's tokenizer: byte-level BPE of 4096 entries with a chat template."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from book.tutor.glossary import load_knowledge
from yaie.system.files import write_whole

VOCAB_SIZE = 4096
CONTEXT_LENGTH = 2048
BOS = "<|begin_of_text|>"
PAD = "<|pad|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
SPECIAL_TOKENS = (BOS, PAD, TURN_START, TURN_END)

# Tools stand in the system turn, one a line, in a form that is short and the same for all clients:
# `name(argument:type,optional?:type): what it does`. Calls are written as Hermes and Qwen write them.
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% if tools %}"
    "{{ '<|im_start|>system\\n' }}"
    "{% if messages[0]['role'] == 'system' %}{{ messages[0]['content'] + '\\n' }}{% endif %}"
    "{{ '<tools>\\n' }}"
    "{% for tool in tools %}"
    "{% set it = tool['function'] or tool %}"
    "{% set schema = it['parameters'] or {} %}"
    "{{ it['name'] + '(' }}"
    "{% for name, kind in (schema['properties'] or {}).items() %}"
    "{{ name + ('' if name in (schema['required'] or []) else '?') + ':' }}"
    "{% if kind['enum'] %}{{ kind['enum'] | join('|') }}"
    "{% elif kind['type'] == 'array' %}{{ ((kind['items'] or {})['type'] or 'any') ~ '[]' }}"
    "{% elif kind['type'] is string %}{{ kind['type'] }}"
    "{% elif kind['type'] %}{{ kind['type'] | first }}"
    "{% elif kind['anyOf'] %}{{ kind['anyOf'][0]['type'] or 'any' }}"
    "{% else %}any{% endif %}"
    "{% if not loop.last %},{% endif %}"
    "{% endfor %}"
    "{{ ')' + (': ' + it['description'].split() | join(' ') if it['description'] else '') + '\\n' }}"
    "{% endfor %}"
    "{{ '</tools><|im_end|>\\n' }}"
    "{% endif %}"
    "{% for message in messages %}"
    "{% if not (tools and loop.first and message['role'] == 'system') %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + (message['content'] or '') }}"
    "{% for call in message['tool_calls'] or [] %}"
    "{% set made = call['function'] or call %}"
    "{% if message['content'] or not loop.first %}{{ '\\n' }}{% endif %}"
    "{{ '<tool_call>\\n{\"name\": ' + made['name'] | tojson + ', \"arguments\": ' }}"
    "{{ made['arguments'] if made['arguments'] is string else made['arguments'] | tojson }}"
    "{{ '}\\n</tool_call>' }}"
    "{% endfor %}"
    "{{ '<|im_end|>\\n' }}"
    "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

# Words with their leading blank, single digits (so that sums are over digits), marks, white space.
_PIECES = Regex(r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """The id of a token that must be in the vocabulary."""
    found: int | None = tokenizer.token_to_id(token)
    if found is None:
        raise ValueError(f"the tokenizer has no token {token!r}")
    return found


def train_tokenizer(dialogues: Iterable[list[dict[str, str]]]) -> Tokenizer:
    """Learn the merges from the knowledge and a sample of conversations."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_PIECES, behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(SPECIAL_TOKENS),
        # All 256 bytes are in the vocabulary, so every UTF-8 text can be written and read back.
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(dialogues), trainer)
    if tokenizer.get_vocab_size() != VOCAB_SIZE:
        raise ValueError(
            f"too little text: the vocabulary has {tokenizer.get_vocab_size()} entries"
        )
    return tokenizer


def _texts(dialogues: Iterable[list[dict[str, str]]]) -> Iterable[str]:
    for term in load_knowledge().terms:
        yield "\n".join((term.what, term.why, term.how, term.example, *term.aliases))
    for messages in dialogues:
        yield "\n".join(message["content"] for message in messages)


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json as transformers' AutoTokenizer reads them."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": TURN_END,
        "pad_token": PAD,
        "additional_special_tokens": [TURN_START],
        "model_max_length": CONTEXT_LENGTH,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    text = json.dumps(config, indent=2) + "\n"
    write_whole(folder / "tokenizer_config.json", text)
