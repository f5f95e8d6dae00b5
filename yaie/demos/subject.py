"""The part that a demo is about: the learner's or the reference's, and engines that run on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from yaie.core.config import EngineConfig
from yaie.engine.llm_engine import LLMEngine
from yaie.parts import Part, load_part


class Subject:
    """One part in use. All other parts of its engines are the reference, so that what is shown is the
    work of this one."""

    def __init__(self, part: Part) -> None:
        self._part = part

    @property
    def package(self) -> Any:
        """The part's package."""
        return self._part.package

    @property
    def mine(self) -> str:
        """What an engine that runs on the part is given as `mine`."""
        return self._part.lab if self._part.is_yours else "none"

    def reference(self, lab: str) -> Any:
        """The reference's package of a lab."""
        return load_part(lab, "none").package

    def naive(self) -> ModuleType:
        """The naive sibling of the part that is the reference."""
        return import_module(f"{load_part(self._part.lab, 'none').module}.naive")

    @contextmanager
    def engine(
        self, *, mine: str | None = None, model: str = "tutor", **settings: Any
    ) -> Iterator[LLMEngine]:
        """A model on the CPU, on the part. mine: other parts. Ended behind the block.

        What environment and files say is not read: a demo shows the same wherever it runs.
        """
        config = EngineConfig(
            model=model, device="cpu", mine=self.mine if mine is None else mine, **settings
        )
        engine = LLMEngine(config)
        try:
            yield engine
        finally:
            engine.close()
