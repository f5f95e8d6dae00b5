"""How a byte-level tokenizer cuts a text before merges join its bytes, by `tokenizer.ggml.pre`.

The patterns are those of the models' own tokenizers. The names are those of llama.cpp, of which a file
holds one in place of a pattern (`llama-vocab.cpp`). transformers has such a table since 5.18.
"""

_ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_MARKS = r"| ?[^\s\p{L}\p{N}]+[\r\n]*" + _SPACES
_MARKS_AND_SLASHES = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _SPACES
_WORD = r"|[^\r\n\p{L}\p{N}]?\p{L}+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_BEFORE = r"[^\r\n\p{L}\p{N}]?"

_LLAMA3 = _ENDINGS + _WORD + r"|\p{N}{1,3}" + _MARKS
_QWEN2 = _ENDINGS + _WORD + r"|\p{N}" + _MARKS
_QWEN35 = (
    _ENDINGS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + _SPACES
)
_GPT4O = (
    f"{_BEFORE}{_UPPER}*{_LOWER}+{_ENDINGS}?|{_BEFORE}{_UPPER}+{_LOWER}*{_ENDINGS}?"
    r"|\p{N}{1,3}" + _MARKS_AND_SLASHES
)
_TEKKEN = (
    f"{_BEFORE}{_UPPER}*{_LOWER}+|{_BEFORE}{_UPPER}+{_LOWER}*" + r"|\p{N}" + _MARKS_AND_SLASHES
)

SPLITS = {
    **dict.fromkeys(
        (
            "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0",
            "lfm2", "jina-v5-nano", "dbrx", "smaug-bpe",
        ),
        _LLAMA3,
    ),
    **dict.fromkeys(
        (
            "qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan",
        ),
        _QWEN2,
    ),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"), _GPT4O),
    "qwen35": _QWEN35,
    "tekken": _TEKKEN,
}  # fmt: skip
"""A regular expression (Oniguruma's) for each kind: every match is a piece of its own."""
