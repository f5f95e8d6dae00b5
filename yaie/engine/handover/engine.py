"""An engine of which another one computes prompts, or which computes them for others."""

from collections.abc import Callable
from typing import Any, ClassVar

from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.core.output import RequestOutput
from yaie.core.request import Request
from yaie.engine.handover.base import Handover
from yaie.engine.handover.decode import DecodeSide
from yaie.engine.handover.layout import layout_of
from yaie.engine.handover.prefill import PrefillSide
from yaie.engine.handover.role import Role
from yaie.engine.handover.store import BlockStore
from yaie.engine.llm_engine import LLMEngine


class DisaggregatedEngine(LLMEngine):
    """An LLMEngine with a side, which stands before its step loop."""

    keeps_blocks: ClassVar[str] = "prompts are handed over from their beginning on"

    def __init__(self, config: EngineConfig, role: Role, **settings: Any) -> None:
        """Raises what an LLMEngine does, and ConfigError if the two servers do not fit."""
        super().__init__(config, **settings)
        try:
            self.side = self._side(role)
        except BaseException:
            super().close()
            raise

    def _side(self, role: Role) -> Handover:
        config = self.config
        if self.model.adapter.state_layers:
            raise ConfigError(
                f"role {role.kind!r} does not go with {self.model.architecture}, whose layers keep a "
                "state beside keys and values: blocks are handed over and states are not",
                param="role",
            )
        layout = layout_of(self.model, config.block_size)
        keep_free = int(config.watermark * self.machine_parts.sizes.num_blocks)
        store = BlockStore(lambda: self.machine_parts, config.block_size, keep_free)
        if role.kind == "prefill":
            return PrefillSide(store, self.add_request, layout, role.address, role.secret)
        return DecodeSide(
            store, self._enter_one, layout, role.address, role.least_tokens, role.secret
        )

    def _enter_one(self, request: Request) -> None:
        self.machine_parts.core.add_request(request)

    # --- as an LLMEngine ---

    @property
    def has_work(self) -> bool:
        """See LLMEngine."""
        return self.side.has_work or super().has_work

    @property
    def num_waiting(self) -> int:
        """See LLMEngine."""
        return super().num_waiting + self.side.num_pending

    def _enter(self, requests: list[Request]) -> None:
        if not self.side.takes(requests):
            super()._enter(requests)

    def step(self) -> list[RequestOutput]:
        """See LLMEngine."""
        outputs = self.side.before_step()
        core = self.machine_parts.core
        if core.has_work:
            outputs += self.side.own(core.step())
        self._counters.stepped(outputs)
        if self._router is None:
            return outputs
        self._router.put(outputs)
        return self._router.take_unclaimed()

    def _abort(self, request_id: str) -> bool:
        return self.side.abort(request_id) or super()._abort(request_id)

    def on_wake(self, wake: Callable[[], None]) -> None:
        """See LLMEngine."""
        self.side.on_wake(wake)

    def stats(self) -> dict[str, float]:
        """See LLMEngine."""
        stats = super().stats()
        stats["num_waiting"] += self.side.num_pending
        return stats | self.side.stats()

    def close(self) -> None:
        """See LLMEngine."""
        self.side.close()
        super().close()
