"""`Tokenizer`: text to token ids and back, and chats to prompts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yaie.core.conversation import PromptOptions
from yaie.core.errors import InvalidRequestError
from yaie.models.chat_templates import ChatTemplates, Json, checked_messages
from yaie.models.text_bounds import TextBounds, num_bytes
from yaie.models.text_encoder import SlowEncoder, in_rust
from yaie.models.token_text import TokenText
from yaie.models.tokenizer_files import first_line, loaded
from yaie.models.untuned_chat import joined_turns, lines_of_turns

LONG = 1 << 14
"""Characters: some 10 ms of work."""


@dataclass(slots=True)
class PromptText:
    """A prompt before it is tokenized: texts, each tokenized by itself, and tokens between them.

    add_special_tokens: what the tokenizer puts around a text, such as a BOS.
    """

    parts: list[str | list[int]]
    add_special_tokens: bool = True

    @property
    def texts(self) -> list[str]:
        """The parts that are not tokens yet."""
        return [part for part in self.parts if isinstance(part, str)]

    @property
    def num_chars(self) -> int:
        """Of all texts."""
        return sum(map(len, self.texts))

    @property
    def is_long(self) -> bool:
        """Whether tokenizing it takes so long that others should not wait for it."""
        return self.num_chars > LONG

    @property
    def num_bytes(self) -> int:
        """Of all texts in UTF-8."""
        return sum(map(num_bytes, self.texts))


class Tokenizer(TokenText):
    """A tokenizer of transformers, without remote code. Ids are plain Python integers. May be used on
    several threads.

    max_bytes: of one prompt that it is given, in UTF-8.
    eos_token_id, bos_token_id: None if the model has no such token.
    has_chat_template: whether chats follow the model's own template (see `apply_chat_template`).
    """

    def __init__(self, tokenizer: Any, model_type: str = "") -> None:
        """tokenizer: a transformers tokenizer. model_type: of the config, for the chat fallback."""
        super().__init__(tokenizer)
        self._backend = in_rust(tokenizer)
        self._slowly = SlowEncoder(tokenizer)
        self._bounds = TextBounds(self._backend)
        self.max_bytes = self._bounds.max_bytes
        self._templates = ChatTemplates(tokenizer)
        self._joins_turns = model_type == "gpt2"
        self.eos_token_id: int | None = tokenizer.eos_token_id
        self.bos_token_id: int | None = tokenizer.bos_token_id
        self.vocab_size: int = len(tokenizer)

    @classmethod
    def load(cls, folder: Path, model_type: str = "") -> "Tokenizer":
        """Read the tokenizer of a model's folder. Raises ModelError if there is none, or it is bad."""
        return cls(loaded(folder), model_type)

    @property
    def of_transformers(self) -> Any:
        """The tokenizer of transformers that does the work."""
        return self._tokenizer

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text, with what the model wants around it (such as a first BOS) by default.

        Beside other threads: this call gives up the GIL while it works, with a batch of one too,
        computes no offsets, and gives the ids of transformers' own `encode`.
        """
        if self._backend is None:
            return self._slowly(text, add_special_tokens)
        (found,) = self._backend.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        ids: list[int] = found.ids
        return ids

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

    def describe(self) -> dict[str, Any]:
        """What a client needs to do the same work: class, special tokens, chat template."""
        special = ("bos_token", "eos_token", "pad_token", "unk_token")
        return {
            "tokenizer_class": type(self._tokenizer).__name__,
            "vocab_size": self.vocab_size,
            **{name: getattr(self._tokenizer, name, None) for name in special},
            "chat_template": self.chat_template or None,
        }

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

    def apply_chat_template(
        self, messages: list[Json], *, tools: list[Json] | None = None, **options: Any
    ) -> list[int]:
        """Token ids of a conversation. options: of `PromptOptions`."""
        return self.encode_parts(self.chat_text(messages, tools, PromptOptions(**options)))

    def chat_text(
        self,
        messages: list[Json],
        tools: list[Json] | None = None,
        options: PromptOptions | None = None,
    ) -> PromptText:
        """A conversation, ready for the assistant's next turn.

        messages: {"role": ..., "content": ...} each, see `checked_messages`. tools: JSON schemas of
        functions that the model may call. Without a template the variables have no effect.

        The model's own Jinja template is rendered in transformers' sandbox. For a model without one see
        `untuned_chat`.

        Raises InvalidRequestError, with `messages` as its parameter if the template refuses them.
        """
        options = options or PromptOptions()
        if not self.has_chat_template:
            messages = checked_messages(messages)
            if self._joins_turns:
                parts = joined_turns(messages, self.eos_token_id, options.continue_final_message)
                return PromptText(parts, add_special_tokens=False)
            return PromptText([lines_of_turns(messages, options.add_generation_prompt)])
        template = self._templates.chosen(tools)
        messages = checked_messages(messages, as_parts=self._templates.wants_parts(template))
        try:
            text = self._templates.rendered(
                template,
                messages,
                tools=tools,
                add_generation_prompt=options.add_generation_prompt,
                continue_final_message=options.continue_final_message,
                **options.variables,
            )
        except Exception as error:  # a template is a program: what it raises is up to its author
            raise InvalidRequestError(
                f"the model's chat template refuses these messages: {first_line(error)}",
                param="messages",
            ) from error
        return PromptText([text], options.add_special_tokens)
