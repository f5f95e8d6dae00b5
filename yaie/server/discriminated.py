"""Bodies with unions in them, and how what is wrong in one is told.

Pydantic puts the member of a union that it tried into the way to a fault. The members here carry tags,
which are taken out again: a client reads the name of the field as it wrote it.
"""

from collections.abc import Callable
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import Discriminator, PrivateAttr, Tag, ValidationError, model_validator

from yaie.core.errors import InvalidRequestError, YaieError
from yaie.core.fields import Fields


class Body(Fields):
    """A whole body. Complaints about it name fields, without the members of unions that were tried."""

    @model_validator(mode="wrap")
    @classmethod
    def _report(cls, value: Any, handler: Callable[[Any], Any]) -> Any:
        try:
            return handler(value)
        except ValidationError as error:
            raise located(error) from None


class Conversation(Body):
    """A whole body that asks for what a chat completion could be asked for in its own words."""

    _chat: Any = PrivateAttr(None)

    def chat_fields(self) -> dict[str, Any]:
        """What `POST /v1/chat/completions` would be sent for the same answer. Holds no None. Raises
        InvalidRequestError."""
        raise NotImplementedError

    def in_our_words(self, error: InvalidRequestError) -> InvalidRequestError:
        """A complaint about that body as one about the field that the client did send."""
        raise NotImplementedError

    def as_chat(self, api: Any) -> Any:
        """The ChatRequest of the API part. Raises RequestValidationError and InvalidRequestError."""
        if isinstance(self._chat, Exception):
            raise self._chat
        return self._chat or self._made(api)

    def make_ready(self, api: Any) -> None:
        """Have `as_chat` beforehand, in the process that reads bodies. What it was made of is forgotten:
        it need not be sent to the server, too."""
        try:
            self._chat = self._made(api)
        except (RequestValidationError, YaieError) as error:
            self._chat = error
        self._forget()

    def _made(self, api: Any) -> Any:
        try:
            return api.ChatRequest.model_validate(self.chat_fields())
        except ValidationError as error:
            raise located(error) from None

    def _forget(self) -> None:
        raise NotImplementedError


def located(error: ValidationError) -> RequestValidationError:
    """The first complaint of pydantic, the only one that clients are told, as FastAPI would have raised
    it, with our tags taken out; behind it all others of unknown fields, which may be left out."""
    first, *others = error.errors(include_url=False)
    faults = [first, *(fault for fault in others if fault["type"] == "extra_forbidden")]
    return RequestValidationError(
        [
            {**fault, "loc": ("body", *(step for step in fault["loc"] if not _is_tag(step)))}
            for fault in faults
        ]
    )


def tag(name: str) -> Tag:
    """Marks a member of a union; `choice` picks it."""
    return Tag(f"<{name}>")


def choice(pick: Callable[[Any], str | None], message: str) -> Discriminator:
    """Tells the members of a union apart. `message`: what to say when `pick` returns none of them."""

    def discriminate(value: Any) -> str | None:
        picked = pick(value)
        return None if picked is None else f"<{picked}>"

    return Discriminator(discriminate, custom_error_type="wrong", custom_error_message=message)


def kind_of(value: Any) -> str | None:
    """The "type" of an object, parsed or not; for `choice`."""
    kind = value.get("type") if isinstance(value, dict) else getattr(value, "type", None)
    return kind if isinstance(kind, str) else None


def text_or_list(value: Any) -> str | None:
    """For `choice` between "text" and "list"."""
    if isinstance(value, str):
        return "text"
    return "list" if isinstance(value, list) else None


def _is_tag(step: int | str) -> bool:
    return isinstance(step, str) and step.startswith("<") and step.endswith(">")
