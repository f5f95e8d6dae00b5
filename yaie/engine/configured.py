"""The configuration that an engine is made with."""

from dataclasses import replace
from typing import Any

from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.core.idle import refuse_idle


def configured(config: EngineConfig | None, settings: dict[str, Any]) -> EngineConfig:
    """`config` with these settings changed; without one, what environment and file say.

    Raises ConfigError.
    """
    if config is not None:
        if unknown := sorted(settings.keys() - EngineConfig.__dataclass_fields__.keys()):
            raise ConfigError(f"no setting is called {unknown[0]!r}", param=unknown[0])
        config = replace(config, **settings)
    else:
        config = EngineConfig.load(settings)
    refuse_idle(config, settings)
    return config
