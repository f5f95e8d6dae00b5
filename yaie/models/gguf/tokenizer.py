"""From a GGUF's vocabulary to the tokenizer files of a model's folder.

Byte-level vocabularies are built here. transformers' own builder leaves out llama.cpp's
pre-tokenizers that take digits one by one, `ignore_merges` and the first token of Llama 3's kind, and
spells special tokens outside of the byte alphabet anew, as DeepSeek's. For SentencePiece's it is used as
it is: it finds the merges that the file does not have.
"""

from pathlib import Path
from typing import Any

from yaie.core.errors import ModelError
from yaie.models.gguf.families import Values
from yaie.models.gguf.splits import SPLITS

_CONTROL, _USER_DEFINED = 3, 4
"""Of tokenizer.ggml.token_type: special tokens, and those that are found whole in a text."""
_PREFIX = "tokenizer.ggml."
_TEMPLATE = "tokenizer.chat_template"

_AS_GPT2 = ("gpt-2", "phi-2", "mpt", "olmo", "roberta-bpe", "jina-es", "jina-de", "jina-v2-code")
_DIGIT_BY_DIGIT = (
    "smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
)  # fmt: skip
_AS_LLAMA3 = (
    "llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
    "jina-v5-nano", "tekken",
)  # fmt: skip
"""Whole words of the vocabulary are taken before any merge, and texts begin with BOS unless the file
says otherwise."""
_UNNAMED = {
    "gpt2": "gpt-2", "starcoder2": "starcoder", "granite": "refact", "qwen2": "qwen2",
    "qwen3": "qwen2", "qwen3moe": "qwen2",
}  # fmt: skip
"""By architecture: what files mean that were written before llama.cpp stored it."""


_NAMED = {
    "bos_token": "bos_token_id",
    "eos_token": "eos_token_id",
    "unk_token": "unknown_token_id",
    "pad_token": "padding_token_id",
}


def write_tokenizer(path: Path, metadata: Values, folder: Path) -> None:
    """Write tokenizer.json, tokenizer_config.json and the chat templates into `folder`.

    path: of the GGUF, for messages. Raises ModelError for a tokenizer that is not read.
    """
    from transformers import TokenizersBackend

    values = {
        key.removeprefix(_PREFIX): value
        for key, value in metadata.items()
        if key.startswith(_PREFIX)
    }
    model, tokens = values.get("model"), values.get("tokens")
    if not tokens:
        raise ModelError(
            f"{path} holds no tokenizer. Take a file that was converted with one, or serve the original "
            "model."
        )
    architecture = metadata["general.architecture"]
    try:
        if model == "gpt2":
            backend, adds_bos = _byte_level(path, values, architecture)
        elif model == "llama":
            backend, adds_bos = _sentence_pieces(values, architecture)
        else:
            raise ModelError(
                f"the tokenizer of {path} is of the kind {model!r}, which is not read from GGUF "
                "(gpt2 and llama are). Serve the original model with safetensors."
            )
        special = {
            name: tokens[values[key]] for name, key in _NAMED.items() if values.get(key) is not None
        }
    except ModelError:
        raise
    except Exception as error:  # of tokenizers, about whatever does not belong together
        raise ModelError(
            f"the tokenizer in {path} cannot be made ({type(error).__name__}: {error}). Fetch the file "
            "again, or serve the original model."
        ) from error
    tokenizer = TokenizersBackend(
        tokenizer_object=backend,
        bos_token=special.pop("bos_token", None),
        eos_token=special.pop("eos_token", None),
        add_bos_token=bool(values.get("add_bos_token", adds_bos)) and "bos_token_id" in values,
        add_eos_token=bool(values.get("add_eos_token", False)) and "eos_token_id" in values,
        chat_template=_templates(metadata),
        clean_up_tokenization_spaces=False,
        **special,
    )
    tokenizer.save_pretrained(folder)


def _templates(metadata: Values) -> Any:
    """The template; by name, if there are several."""
    default = metadata.get(_TEMPLATE)
    named = {
        key.removeprefix(f"{_TEMPLATE}."): text
        for key, text in metadata.items()
        if key.startswith(f"{_TEMPLATE}.")
    }
    return {"default": default, **named} if named and default else default


def _byte_level(path: Path, values: Values, architecture: str) -> tuple[Any, bool]:
    """(a tokenizer of `tokenizers`, whether it puts BOS first if the file does not say)."""
    from tokenizers import AddedToken, Tokenizer, decoders, models

    kind = values.get("pre", "default")
    if kind == "default":
        kind = _UNNAMED.get(architecture, kind)
    tokens = values["tokens"]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=[tuple(merge.split(" ", 1)) for merge in values["merges"]],
            ignore_merges=kind in _AS_LLAMA3,
        )
    )
    tokenizer.pre_tokenizer = _pre_tokenizer(path, kind)
    tokenizer.decoder = decoders.ByteLevel()
    marked = list(zip(tokens, values.get("token_type") or (), strict=False))
    tokenizer.add_special_tokens(
        [
            AddedToken(one, normalized=False, special=True)
            for one, type in marked
            if type == _CONTROL
        ]
    )
    tokenizer.add_tokens(
        [AddedToken(one, normalized=False) for one, type in marked if type == _USER_DEFINED]
    )
    return tokenizer, kind in _AS_LLAMA3


def _pre_tokenizer(path: Path, kind: str) -> Any:
    """What cuts a text before merges join its bytes."""
    from tokenizers import Regex, pre_tokenizers

    if kind in _AS_GPT2:
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if kind in _DIGIT_BY_DIGIT:
        return pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
    split = SPLITS.get(kind)
    if split is None:
        raise ModelError(
            f"{path} cuts its texts in the way {kind!r} (tokenizer.ggml.pre), which is not known here: "
            "its tokens would not be the model's. Serve the original model with safetensors."
        )
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _sentence_pieces(values: Values, architecture: str) -> tuple[Any, bool]:
    """As `_byte_level`. BOS comes first unless the file says otherwise, as in llama.cpp."""
    from tokenizers import decoders, pre_tokenizers

    try:
        from transformers.integrations.gguf import GGUF_TOKENIZER_MAPPING, convert_gguf_tokenizer
    except ImportError:  # before transformers 5.18
        from transformers.integrations.ggml import GGUF_TOKENIZER_MAPPING, convert_gguf_tokenizer

    names = GGUF_TOKENIZER_MAPPING["tokenizer"]
    own = {
        name: values[key.removeprefix("ggml.")]
        for key, name in names.items()
        if key.removeprefix("ggml.") in values
    }
    backend, _ = convert_gguf_tokenizer(architecture, own)
    is_metaspace = isinstance(backend.pre_tokenizer, pre_tokenizers.Metaspace)
    if values.get("add_space_prefix") is False and is_metaspace:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
        backend.decoder = decoders.Sequence(
            [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
        )
    return backend, True
