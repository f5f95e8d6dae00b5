"""Types of the fields of a request to the server, and how much of each there may be."""

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    ValidationError,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from yaie.core.params import MAX_BIAS, MAX_LOGIT_BIASES, MAX_STOP_CHARS, MAX_STOPS, RANGES

T = TypeVar("T")

MAX_MESSAGES = 4096
MAX_TOOLS = 128
MAX_PROMPTS = 256
MAX_CHOICES = 1024
"""Of one call: prompts times `n`."""
MAX_JSON_DEPTH = 64
"""Of what is passed on as it is: schemas, and the arguments of calls."""


MAX_LABELS, MAX_LABEL_CHARS = 64, 1024
"""Of what is only repeated in an answer. OpenAI takes 16 labels of 512 characters."""
MAX_KEYS = 256
"""Of an object, more than any `Fields` knows."""


class Fields(BaseModel):
    """An object of which every key is known."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _with_one_unknown(cls, value: Any) -> Any:
        """Each unknown key would be an error of its own, which took a fifth of a second for 32,768 of
        them. A client is told the first one."""
        if not isinstance(value, dict) or len(value) <= MAX_KEYS:
            return value
        known = {field.alias or name for name, field in cls.model_fields.items()}
        unknown = next(key for key in value if key not in known)
        return {key: inner for key, inner in value.items() if key in known or key == unknown}


def wrong(message: str) -> PydanticCustomError:
    """What a validator raises; `validation_error` puts the parameter in front."""
    return PydanticCustomError("wrong", "{message}", {"message": message})


def or_say(message: str) -> WrapValidator:
    """One message for a union, instead of a complaint from each of its members."""

    def check(value: Any, handler: Callable[[Any], T]) -> T:
        try:
            return handler(value)
        except ValidationError:
            raise wrong(message) from None

    return WrapValidator(check)


def ranged(name: str, description: str | None = None, **changes: float) -> Any:
    """A field that is None unless given. SamplingParams checks its range, the schema tells it."""
    return Field(None, description=description, json_schema_extra={**RANGES[name], **changes})


def _encodable(text: str) -> str:
    if text.isascii():  # most are; a copy of a long one would hold up all other threads
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        raise wrong(
            "It must not hold half of a surrogate pair, which is not a character."
        ) from None
    return text


def plain(value: dict[str, Any]) -> dict[str, Any]:
    """Whatever comes later can write it as JSON again, and read it without running out of stack."""
    level: list[Any] = [value]
    for _ in range(MAX_JSON_DEPTH):
        inner: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                inner += [*item.keys(), *item.values()]
            elif isinstance(item, list):
                inner += item
            elif isinstance(item, str):
                _encodable(item)
            elif isinstance(item, float) and not math.isfinite(item):
                raise wrong("It must not hold NaN or Infinity, which are no JSON.")
        if not inner:
            return value
        level = inner
    raise wrong(f"It must not be nested more than {MAX_JSON_DEPTH} levels deep.")


def _exactly(value: Any, wanted: bool) -> Any:
    """A literal takes 0 for false and 1 for true."""
    if value is not wanted:
        raise wrong(f"Only {str(wanted).lower()} is supported.")
    return value


def _short_stops(stops: Any) -> Any:
    """Each stop string is looked for at every token."""
    for index, stop in enumerate([stops] if isinstance(stops, str) else stops):
        if len(stop) > MAX_STOP_CHARS:
            raise wrong(
                f"A stop string may have at most {MAX_STOP_CHARS} characters; the one at index {index} "
                f"has {len(stop)}. Send a shorter part of it."
            )
    return stops


def _few(value: Any) -> Any:
    """Each label that is wrong would be an error of its own."""
    if isinstance(value, dict) and len(value) > MAX_LABELS:
        raise wrong(f"It must hold at most {MAX_LABELS} labels.")
    return value


FAST: Any = Field(fail_fast=True)
"""For lists: the first element that is wrong is the only one that is told. Each would be an error of its
own, ten thousand of which took 30 ms to write."""

Text = Annotated[str, AfterValidator(_encodable)]
Label = Annotated[Text, Field(max_length=MAX_LABEL_CHARS)]
Labels = Annotated[dict[Label, Label], Field(max_length=MAX_LABELS), BeforeValidator(_few)]
Integer = Annotated[int, Strict()]
Number = Annotated[float, Strict()]
Flag = Annotated[bool, Strict()]
Never = Annotated[Literal[False], BeforeValidator(lambda value: _exactly(value, False))]
Always = Annotated[Literal[True], BeforeValidator(lambda value: _exactly(value, True))]
Nothing = Annotated[list[Any], Field(max_length=0)]
JsonObject = Annotated[dict[str, Any], AfterValidator(plain)]

Stop = Annotated[Text, Field(min_length=1, json_schema_extra={"maxLength": MAX_STOP_CHARS})]
_ListOfStops = Annotated[list[Stop], Field(max_length=MAX_STOPS), FAST]
StopList = Annotated[_ListOfStops, AfterValidator(_short_stops)]
Stops = Annotated[
    Stop | _ListOfStops,
    or_say(f"It must be a string or a list of at most {MAX_STOPS} strings, none of them empty."),
    AfterValidator(_short_stops),
]

TokenId = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]
Bias = Annotated[Number, Field(ge=-MAX_BIAS, le=MAX_BIAS)]
LogitBias = Annotated[
    Annotated[dict[TokenId, Bias], Field(max_length=MAX_LOGIT_BIASES)],
    or_say(
        f"It must map at most {MAX_LOGIT_BIASES} token ids (as strings) to numbers from "
        f"{-MAX_BIAS:.0f} to {MAX_BIAS:.0f}."
    ),
]
