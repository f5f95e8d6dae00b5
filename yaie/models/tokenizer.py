"""`Tokenizer`: text to token ids and back, and chats to prompts."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from yaie.core.errors import InvalidRequestError, ModelError
from yaie.models.chat_templates import ChatTemplates, in_parts
from yaie.models.fields import TOKENIZER, check_fields
from yaie.models.json_files import read_json
from yaie.models.lookalikes import refuse_pointer
from yaie.models.text_bounds import TextBounds
from yaie.models.text_encoder import PromptText, TextEncoder
from yaie.models.token_bytes import TokenBytes, decoder, whole_decoder

_VOCABULARIES = (
    "tokenizer.json",
    "vocab.json",
    "vocab.txt",
    "*.model",
    "*.tiktoken",
    "tekken.json",
)


class Tokenizer:
    """A tokenizer of transformers, without remote code. Ids are plain Python integers. May be used on
    several threads.

    max_bytes: of one prompt that it is given, in UTF-8.
    eos_token_id, bos_token_id: None if the model has no such token.
    has_chat_template: whether chats follow the model's own template (see `apply_chat_template`).
    """

    def __init__(self, tokenizer: Any, model_type: str = "") -> None:
        """tokenizer: a transformers tokenizer. model_type: of the config, for the chat fallback."""
        self._tokenizer = tokenizer
        self._encoder = TextEncoder(tokenizer)
        self._bounds = TextBounds(self._encoder.backend)
        self.max_bytes = self._bounds.max_bytes
        self._templates = ChatTemplates(tokenizer)
        self._joins_turns = model_type == "gpt2"
        self._bytes = TokenBytes(tokenizer)
        self._decode = decoder(tokenizer, self._bytes.shown)
        self._decode_all = whole_decoder(tokenizer, skips_special=False)
        self.eos_token_id: int | None = tokenizer.eos_token_id
        self.bos_token_id: int | None = tokenizer.bos_token_id
        self.vocab_size: int = len(tokenizer)

    @classmethod
    def load(cls, folder: Path, model_type: str = "") -> "Tokenizer":
        """Read the tokenizer of a model's folder. Raises ModelError if there is none, or it is bad."""
        from transformers import AutoTokenizer

        if not any(path for pattern in _VOCABULARIES for path in folder.glob(pattern)):
            raise ModelError(
                f"{folder} has no tokenizer (tokenizer.json, or the files of an older one). Copy the "
                "tokenizer files of the model it was trained from into the folder."
            )
        check_files(folder)
        try:
            tokenizer = AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
        except Exception as error:  # every kind of tokenizer fails in its own way
            for path in folder.iterdir():
                refuse_pointer(path)
            files = sorted(path.name for kind in _VOCABULARIES for path in folder.glob(kind))
            raise ModelError(
                f"the tokenizer in {folder} ({', '.join(files)}) cannot be loaded: "
                f"{_first_line(error)}. If its files are whole, the kind is one that this installation "
                "of transformers does not know."
            ) from error
        if not tokenizer.chat_template and (folder / "chat_template.json").is_file():
            from yaie.models.processor_template import take_template

            take_template(tokenizer, folder)
        return cls(tokenizer, model_type)

    @property
    def of_transformers(self) -> Any:
        """The tokenizer of transformers that does the work."""
        return self._tokenizer

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text, with what the model wants around it (such as a first BOS) by default."""
        return self._encoder(text, add_special_tokens)

    def encode_parts(self, prompt: PromptText) -> list[int]:
        """Token ids of a prompt."""
        found: list[int] = []
        for part in prompt.parts:
            found += self.encode(part, prompt.add_special_tokens) if isinstance(part, str) else part
        return found

    def fewest(self, prompt: PromptText) -> int:
        """So many tokens a prompt has at least, of those not tokenized yet. See `TextBounds.fewest`."""
        return sum(map(self._bounds.fewest, prompt.texts))

    def end(self, prompt: PromptText, num_tokens: int) -> PromptText:
        """What is to be tokenized of a prompt whose last tokens alone matter. See `TextBounds.end`."""
        texts: list[str | list[int]] = [self._bounds.end(text, num_tokens) for text in prompt.texts]
        return PromptText(texts, prompt.add_special_tokens)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of these tokens, special tokens left out, except for those around calls of tools.

        Bytes that do not yet make a whole character show as U+FFFD. Called once for each token that is
        generated, so it takes the shortest way to the Rust decoder.
        """
        return self._decode(ids)

    def decode_all(self, ids: Sequence[int]) -> str:
        """The text of these tokens, special tokens as they are written."""
        return self._decode_all(ids)

    def token_strings(self, ids: Sequence[int]) -> list[str]:
        """Each token as the vocabulary spells it: bytes of a byte-level one stand as letters."""
        return [token or "" for token in self._tokenizer.convert_ids_to_tokens(list(ids))]

    def describe(self) -> dict[str, Any]:
        """What a client needs to do the same work: class, special tokens, chat template."""
        special = ("bos_token", "eos_token", "pad_token", "unk_token")
        return {
            "tokenizer_class": type(self._tokenizer).__name__,
            "vocab_size": self.vocab_size,
            **{name: getattr(self._tokenizer, name, None) for name in special},
            "chat_template": self.chat_template or None,
        }

    def token_bytes(self, token_id: int) -> bytes | None:
        """What a token adds to a text, in UTF-8; it may be part of a character. None for a special
        token that `decode` leaves out. The space in front of a SentencePiece token is always there,
        while `decode` drops it at the start of a text.
        """
        return self._bytes.of(token_id)

    @property
    def has_byte_tokens(self) -> bool:
        """Whether `token_bytes` says what a token adds wherever it stands, but for that space."""
        return self._bytes.are_pieces

    @property
    def joins_bytes(self) -> bool:
        """Whether the text of tokens is the UTF-8 of their bytes (`token_bytes`), all in a row."""
        return self._bytes.joins

    def token_name(self, token_id: int) -> str:
        """A token as the vocabulary writes it: what is left to show of a special one."""
        return self._bytes.piece(token_id)

    def special_token_id(self, text: str) -> int | None:
        """The special token that is written so; None if there is none."""
        return self._bytes.special_id(text)

    @property
    def chat_template(self) -> str:
        """The Jinja text; all of them, if there are several; "" if there is none."""
        return self._templates.text

    @property
    def has_chat_template(self) -> bool:
        return bool(self._templates.text)

    @property
    def template_note(self) -> str | None:
        """Why the model's templates refuse conversations, if they do whatever is in them."""
        return self._templates.without_default

    def wants_parts(self, tools: list[dict[str, Any]] | None = None) -> bool:
        """Whether the template for a conversation with these tools goes through the parts of contents:
        those of a message need not be joined. Raises InvalidRequestError as `chat_text` does."""
        return self.has_chat_template and self._templates.wants_parts(self._templates.chosen(tools))

    def apply_chat_template(self, messages: list[dict[str, Any]], **options: Any) -> list[int]:
        """Token ids of a conversation: those of its `chat_text`, which takes the same options."""
        return self.encode_parts(self.chat_text(messages, **options))

    def chat_text(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: list[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        add_special_tokens: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> PromptText:
        """A conversation, ready for the assistant's next turn.

        messages: {"role": ..., "content": ...} each; a content is a text, or a list of text parts where
        the template `wants_parts`. tools: JSON schemas of functions. For the others see
        `yaie.core.params.PromptOptions`; without a template the variables have no effect.

        The model's own Jinja template is rendered in transformers' sandbox. A model without one is
        not tuned for chat; GPT-2 models then get the turns joined by end-of-sequence tokens, as
        DialoGPT was trained (Zhang et al. 2019), and others one line `role: content` for each turn.

        Raises InvalidRequestError (`messages`) if the template refuses the conversation.
        """
        if not self.has_chat_template:
            return self._fallback_chat(messages, add_generation_prompt, continue_final_message)
        template = self._templates.chosen(tools)
        if self._templates.wants_parts(template):
            messages = in_parts(messages)
        try:
            text = self._templates.rendered(
                template,
                messages,
                tools=tools,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                **(variables or {}),
            )
        except Exception as error:  # a template is a program: what it raises is up to its author
            raise InvalidRequestError(
                f"the model's chat template refuses these messages: {_first_line(error)}",
                param="messages",
            ) from error
        return PromptText([text], add_special_tokens)

    def _fallback_chat(
        self, messages: list[dict[str, Any]], add_generation_prompt: bool, is_continued: bool
    ) -> PromptText:
        turns = [
            (str(turn.get("role", "user")), str(turn.get("content") or "")) for turn in messages
        ]
        if self._joins_turns:
            eos = [] if self.eos_token_id is None else [self.eos_token_id]
            parts: list[str | list[int]] = [part for _, text in turns for part in (text, eos)]
            return PromptText(parts[:-1] if is_continued else parts, add_special_tokens=False)
        lines = [f"{role}: {text}" for role, text in turns]
        if add_generation_prompt:
            lines.append("assistant:")
        return PromptText(["\n".join(lines)])


def check_files(folder: Path) -> None:
    """Raise ModelError for a file that transformers would trip over, or take for what it is not."""
    for name in ("tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"):
        path = folder / name
        if path.is_file():
            values = read_json(path)
            if name != "added_tokens.json":
                check_fields(path, values, TOKENIZER)
    for name in ("tokenizer.json", "chat_template.jinja"):
        refuse_pointer(folder / name)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
