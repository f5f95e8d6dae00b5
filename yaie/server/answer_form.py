"""The form that the answer to one request must have: from the client's words to the engine's.

Calls of tools come in the model's own form, and a model that reasons does so before the form begins.
"""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from yaie.core.constraint import Constraint
from yaie.core.errors import InvalidRequestError
from yaie.core.params import SamplingParams
from yaie.engine.input.grammars.compiler import TOO_LARGE
from yaie.engine.input.grammars.schema_limits import MOST_CHARS
from yaie.server.lenient.notes import Notes
from yaie.server.tools.text_grammars import TEXTS, TextGrammar

if TYPE_CHECKING:
    from yaie.engine.background.async_engine import Prompt
    from yaie.server.service import Service

MOST_TOOLS_CHARS = 1 << 19
"""Of the schemas of all functions that a grammar is made of, on the event loop; what is left without
descriptions and the like may have a quarter of them."""


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """wanted: as the body says it, or what stands beside it. source: the field that does, if it is one
    beside the body. texts: grammars of functions' inputs, by the functions' names."""

    wanted: Constraint
    source: str = ""
    texts: Mapping[str, TextGrammar] = field(default_factory=dict)

    @classmethod
    def of(cls, params: SamplingParams, notes: Notes) -> "AnswerForm":
        """That of a request which has one, in its parameters or beside them."""
        source, wanted = notes.form or ("", params.constraint)
        assert wanted is not None
        texts = notes.beside.get(TEXTS) if wanted.kind == "tools" else None
        return cls(wanted, source, texts or {})

    async def constraint(self, service: "Service", prompt: "Prompt") -> Constraint:
        """The form in the engine's words. Raises InvalidRequestError."""
        if self.texts:  # reading a client's grammar may take a second
            return await asyncio.to_thread(self._grammar, service, prompt)
        return self._grammar(service, prompt)

    def _grammar(self, service: "Service", prompt: "Prompt") -> Constraint:
        wanted = self.wanted
        if wanted.kind == "json_schema" and len(wanted.text) > MOST_CHARS:
            return wanted  # which the engine refuses
        if wanted.kind == "tools":
            if len(wanted.text) > MOST_TOOLS_CHARS:
                raise InvalidRequestError(
                    f"tools: the schemas that calls must follow have {len(wanted.text)} characters and "
                    f"may have {MOST_TOOLS_CHARS} at most. Send fewer tools, or leave out strict.",
                    param="tools",
                )
            demand = json.loads(wanted.text)
            texts = self.texts
            demand["texts"] = {it: texts[it] for it in demand["functions"] if it in texts}
            wanted = Constraint("lark", service.known_format().grammar(demand))
        if service.reasoning is None or isinstance(prompt, str):
            return wanted
        return service.reasoning.before(wanted, service.engine.tokenizer, prompt)

    def blamed(self, error: InvalidRequestError) -> InvalidRequestError:
        """An error of the engine, by the name of the field that asks for the form."""
        source = self._to_blame(error) if self.wanted.kind == "tools" else self.source
        if error.param != "response_format" or not source:
            return error
        return InvalidRequestError(f"{source}: {error.message}", param=source)

    def _to_blame(self, error: InvalidRequestError) -> str:
        """Of a request with tools. The grammars of texts have been compiled by themselves, so only what
        following one needs may be too much."""
        if len(self.texts) == 1 and TOO_LARGE in error.message:
            return next(iter(self.texts.values())).field
        return "tools"
