"""Arguments of calls: the schema that a tool declares for them, and what a history holds of them."""

import json
import logging
from typing import Annotated, Any

from pydantic import AfterValidator

from yaie.core.fields import JsonObject, plain, wrong
from yaie.server.lenient.notes import ignored, refuses

logger = logging.getLogger(__name__)

NONE = "{}"


def _describes_an_object(schema: dict[str, Any]) -> dict[str, Any]:
    """A chat completion says so too, but of a tool's place among those that are not left out."""
    if schema.get("type", "object") != "object":
        raise wrong('Its type must be "object": arguments have names.')
    return schema


ArgumentsSchema = Annotated[JsonObject, AfterValidator(_describes_an_object)]


class EarlierCalls:
    """Brings the arguments of earlier calls to what chat templates can carry.

    `max_tokens` may have cut a call, and what is left of its arguments comes back in every later turn.
    """

    def __init__(self, where: str) -> None:
        """where: the arguments, as a client writes them."""
        self._where = where
        self._num_broken = 0

    def carried(self, arguments: str) -> str:
        """The arguments, or none if they are not a JSON object. A strict server lets them be refused."""
        if refuses() or _is_object(arguments):
            return arguments
        return self.none()

    def none(self) -> str:
        """Those of a call that has none that can be read."""
        self._num_broken += 1
        return NONE

    def tell(self) -> None:
        """Note how many were broken."""
        if self._num_broken:
            ignored(self._where)
            logger.info(
                "%d call(s) of a history had arguments that are no JSON object; the prompt has {} there",
                self._num_broken,
            )


def _is_object(text: str) -> bool:
    """Whether it is one that can be written again."""
    try:
        found = json.loads(text)
        return isinstance(found, dict) and plain(found) is found
    except (ValueError, RecursionError):
        return False
