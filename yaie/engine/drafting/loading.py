"""What makes drafts beside a model, loaded as the configuration says."""

from functools import partial

from yaie.backends import Backend
from yaie.core.config import EngineConfig
from yaie.models.drafting import load_draft_model, load_mtp_head, load_own_head
from yaie.models.loader import LoadedModel
from yaie.worker.build import Drafting


def load_drafting(config: EngineConfig, model: LoadedModel, backend: Backend) -> Drafting:
    """The draft model or the head that `config.speculate` wants. Raises ConfigError and ModelError."""
    if config.speculate == "draft":
        products = partial(backend.make_packed_gemm, model.device)
        ops = backend.make_ops()
        return Drafting(load_draft_model(config, model, ops, backend.dtypes, products))
    if config.speculate == "mtp" and model.adapter.brings_head:
        from yaie.backends.states import make_state_ops

        gate = make_state_ops(backend.name, backend.parts, model.device).sigmoid_gate
        return Drafting(head=load_own_head(model, gate))
    if config.speculate == "mtp":
        return Drafting(head=load_mtp_head(config, model))
    return Drafting()
