"""Which part an engine has in a handover, and what does not go together with it."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.core.request import Request
from yaie.engine.handover.address import Address

if TYPE_CHECKING:
    from yaie.engine.llm_engine import LLMEngine

ONE_RANK = "runs on one rank as yet: leave it out"


@dataclass(frozen=True, slots=True)
class Role:
    """kind: which side. address: where the prefill side listens. least_tokens: the decode side computes
    a prompt itself that lacks fewer in its cache. secret: what both servers must know."""

    kind: Literal["prefill", "decode"]
    address: Address
    least_tokens: int
    secret: bytes | None = field(default=None, repr=False)

    def check(self, config: EngineConfig) -> None:
        """Raise ConfigError, before anything is loaded, for what does not go together."""
        drafts = config.speculate in ("draft", "mtp")
        wrong = {
            "prefix_caching": (not config.prefix_caching, "hands over cached blocks: switch it on"),
            "tensor_parallel": (config.tensor_parallel > 1, ONE_RANK),
            "pipeline_parallel": (config.pipeline_parallel > 1, ONE_RANK),
            "kv_dtype": (config.kv_dtype == "int8", "hands blocks over unrounded: leave it out"),
            "speculate": (drafts, "hands over nothing that drafts are made from: take 'ngram'"),
        }
        for name, (is_wrong, why) in wrong.items():
            if is_wrong:
                given = getattr(config, name)
                raise ConfigError(
                    f"{name} {given!r} does not go with role {self.kind!r}, which {why}", param=name
                )
        if self.kind == "prefill":
            self.address.check_free()
        else:
            self.address.check()

    def take(self, engine: "LLMEngine") -> None:
        """Put this side before the engine's step loop. Raises ConfigError."""
        from yaie.engine.handover.decode import DecodeSide
        from yaie.engine.handover.layout import layout_of
        from yaie.engine.handover.prefill import PrefillSide
        from yaie.engine.handover.store import BlockStore

        config = engine.config
        layout = layout_of(engine.model, config.block_size)
        keep_free = int(config.watermark * engine.machine_parts.sizes.num_blocks)
        store = BlockStore(lambda: engine.machine_parts, config.block_size, keep_free)

        def queue(request: Request) -> None:
            engine.machine_parts.core.add_request(request)

        if self.kind == "prefill":
            engine.handover = PrefillSide(
                store, engine.add_request, layout, self.address, self.secret
            )
        else:
            engine.handover = DecodeSide(
                store, queue, layout, self.address, self.least_tokens, self.secret
            )
