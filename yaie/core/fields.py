"""Types of the fields of a request to the server, and how much of each there may be."""

import math
import sys
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    Strict,
)
from pydantic_core import PydanticCustomError, core_schema

from yaie.core.params_lists import MAX_LOGIT_BIASES, MAX_STOP_CHARS, MAX_STOPS
from yaie.core.ranges import RANGES, Range

MAX_MESSAGES = 4096
MAX_TOOLS = 128
MAX_PROMPTS = 256
MAX_CHOICES = 1024
"""Of one call: prompts times `n`."""
HALF_A_PAIR = "It must not hold half of a surrogate pair, which is not a character."
MAX_JSON_DEPTH = 64
"""Of what is passed on as it is: schemas, and the arguments of calls."""

MAX_LABELS, MAX_LABEL_CHARS = 64, 1024
"""Of what is only repeated in an answer. OpenAI takes 16 labels of 512 characters."""


class Fields(BaseModel):
    """An object of which every key is known."""

    model_config = ConfigDict(extra="forbid")


def wrong(message: str) -> PydanticCustomError:
    """What a validator raises; `validation_error` puts the parameter in front."""
    return PydanticCustomError("wrong", "{message}", {"message": message})


@dataclass(frozen=True)
class OrSay:
    """Marks a type of which there is one message, whatever is wrong. Pydantic itself says it: a
    validator in Python would be called for each value that is right."""

    message: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        return self.around(handler(source))

    def around(self, schema: core_schema.CoreSchema) -> core_schema.CoreSchema:
        """The same with this message."""
        context = {"message": self.message}
        return core_schema.custom_error_schema(
            schema, "wrong", custom_error_message="{message}", custom_error_context=context
        )


def or_say(message: str) -> OrSay:
    """One message for a union, instead of a complaint from each of its members."""
    return OrSay(message)


class Encodable:
    """Marks a text that must not hold half of a surrogate pair. Pydantic itself looks for one, too."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        # It looks into a text only if there is a bound on it.
        looked_into = core_schema.str_schema(max_length=sys.maxsize)
        return core_schema.chain_schema([handler(source), OrSay(HALF_A_PAIR).around(looked_into)])


@dataclass(frozen=True)
class InRange:
    """Marks a number that must be in a range, for a field and for its schema.

    quotes: whether a message says which number was wrong. Without, pydantic itself compares: a list of
    half a million token ids would cost a call of a function of ours for each.
    """

    limits: Range
    quotes: bool = True

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        inner: Any = handler(source)
        if self.quotes:
            return core_schema.no_info_after_validator_function(self._checked, inner)
        inner = {**inner, "ge": self.limits.low, "le": self.limits.high}
        return core_schema.custom_error_schema(
            inner, "wrong", custom_error_message=f"It must be an integer {self.limits.told}."
        )

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), **self.limits.schema}

    def _checked(self, value: Any) -> Any:
        if value is not None and not self.limits.holds(value):
            raise wrong(f"It {self.limits.complaint(value)}.")
        return value


def ranged(name: str, description: str | None = None, *, minimum: float | None = None) -> Any:
    """A field that is None unless given. SamplingParams checks its range, the schema tells it. minimum:
    if it is another here."""
    limits = RANGES[name] if minimum is None else replace(RANGES[name], low=minimum)
    return Field(None, description=description, json_schema_extra=limits.schema)


def bounded(name: str, description: str | None = None) -> Any:
    """A field that is None unless given, whose range is checked here: of what SamplingParams does not
    have, or has under another name."""
    field: Any = Field(None, description=description)
    field.metadata.append(InRange(RANGES[name]))
    return field


def _encodable(text: str) -> str:
    if text.isascii():  # most are; a copy of a long one would hold up all other threads
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        raise wrong(HALF_A_PAIR) from None
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
            elif type(item) is int and not RANGES["json"].holds(item):
                raise wrong(f"Every number in it {RANGES['json'].complaint(item)}.")
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

Text = Annotated[str, Encodable()]
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

Token = Annotated[Integer, InRange(RANGES["token"])]
PromptToken = Annotated[Integer, InRange(RANGES["token"], quotes=False)]

TokenId = Annotated[str, Field(pattern=r"^[0-9]{1,9}$")]
Bias = Annotated[Number, InRange(RANGES["logit_bias"])]
LogitBias = Annotated[
    Annotated[dict[TokenId, Bias], Field(max_length=MAX_LOGIT_BIASES)],
    or_say(
        f"It must map at most {MAX_LOGIT_BIASES} token ids (as strings, "
        f"{RANGES['biased_token'].told}) to numbers {RANGES['logit_bias'].told}."
    ),
]
