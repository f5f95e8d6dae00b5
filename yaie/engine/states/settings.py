"""What does not go with a model whose layers keep a state, said before its weights are read."""

from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError


def check_states(config: EngineConfig, architecture: str, brings_head: bool) -> None:
    """Raise ConfigError for a setting that needs more than states can give as yet.

    architecture: of the model, one with such layers. brings_head: whether its checkpoint may have a head
    that drafts.
    """
    wrong = {
        "speculate": (
            config.speculate == "mtp" and not brings_head,
            "no head of such a model is read as yet: take 'ngram', or 'draft'",
        ),
        "preemption": (
            config.preemption == "swap",
            "blocks are swapped and states are not: leave it at recompute",
        ),
        "deterministic": (
            config.deterministic,
            "a state depends on where its prompt was cut into chunks: leave it out",
        ),
    }
    for name, (is_wrong, why) in wrong.items():
        if is_wrong:
            raise ConfigError(
                f"{name} {getattr(config, name)!r} does not go with {architecture}, whose layers keep a "
                f"state beside keys and values: {why}",
                param=name,
            )
