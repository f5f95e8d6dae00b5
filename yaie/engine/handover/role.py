"""Which part an engine has in a handover, and what does not go together with it."""

from dataclasses import dataclass, field
from typing import Literal

from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.engine.handover.address import Address

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
