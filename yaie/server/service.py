"""The backend that the HTTP API is given: a background engine, and the name of its model there."""

from collections.abc import Sequence
from typing import Any

from yaie.core.params import SamplingParams
from yaie.engine.async_engine import AsyncEngine, Prompt
from yaie.engine.request_stream import RequestStream


class Service:
    """One model behind one name. See `yaie.core.contracts.ServingBackend`."""

    def __init__(self, engine: AsyncEngine, served_model_name: str | None = None) -> None:
        """`served_model_name`: None for the model's own name, known once it is loaded."""
        self.engine = engine
        self._name = served_model_name

    @property
    def model_name(self) -> str:
        """What clients call the model. Raises EngineUnavailableError while it loads."""
        return self._name or self.engine.engine.model_name

    @property
    def max_model_len(self) -> int:
        """The longest sequence, prompt and output together."""
        return self.engine.engine.max_model_len

    @property
    def sampling_defaults(self) -> dict[str, Any]:
        """Sampling parameters of requests that do not give them."""
        return self.engine.engine.sampling_defaults

    async def encode_chat(self, messages: list[dict[str, Any]]) -> list[int]:
        """The prompt of a conversation. Raises InvalidRequestError."""
        return await self.engine.encode_chat(messages)

    async def submit_all(
        self, prompts: Sequence[Prompt], params: SamplingParams, *, priority: int = 0
    ) -> RequestStream:
        """Queue several prompts as one stream: all are admitted, or none."""
        return await self.engine.submit_all(prompts, params, priority=priority)
