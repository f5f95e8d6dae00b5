"""The head that drafts for a model, made as the configuration says: for an engine, and for a replay."""

from yaie.backends.base import Backend
from yaie.core.config import EngineConfig
from yaie.models.draft_head import DraftHead
from yaie.models.drafting import load_mtp_head, load_own_head
from yaie.models.loader import LoadedModel


def load_head(config: EngineConfig, model: LoadedModel, backend: Backend) -> DraftHead | None:
    """None if no head drafts. Raises ConfigError and ModelError."""
    if config.speculate != "mtp":
        return None
    if not model.adapter.brings_head:
        return load_mtp_head(config, model)
    from yaie.backends.states import make_state_ops

    gate = make_state_ops(backend.name, backend.parts, model.device).sigmoid_gate
    return load_own_head(model, gate)
