"""What makes drafts beside a model, loaded as the configuration says."""

from functools import partial

from yaie.backends import Backend
from yaie.core.config import EngineConfig
from yaie.models.drafting import load_draft_model
from yaie.models.loader import LoadedModel
from yaie.worker.build import Drafting
from yaie.worker.heads import load_head


def load_drafting(config: EngineConfig, model: LoadedModel, backend: Backend) -> Drafting:
    """The draft model or the head that `config.speculate` wants. Raises ConfigError and ModelError."""
    if config.speculate != "draft":
        return Drafting(head=load_head(config, model, backend))
    products = partial(backend.make_packed_gemm, model.device)
    ops = backend.make_ops()
    return Drafting(load_draft_model(config, model, ops, backend.dtypes, products))
