"""From a configuration to a model that is ready to run, on one rank or on several."""

from functools import partial

from yaie.backends import Backend, choose_backend
from yaie.core.config import EngineConfig
from yaie.engine.states.settings import check_states
from yaie.models.drafting import check_own_head, draft_is_packed
from yaie.models.loader import LoadedModel, ModelLoader, resolve_device
from yaie.worker.deterministic import check_deterministic
from yaie.worker.parallel.executor import RankExecutor
from yaie.worker.parallel.groups import check_devices, use_device
from yaie.worker.parallel.launch import Launch
from yaie.worker.threads import use_threads


def load_model(
    config: EngineConfig, launch: Launch | None = None
) -> tuple[Backend, LoadedModel, RankExecutor | None]:
    """The backend, the model, or rank 0's part of it, and the other ranks; None if the model is whole.

    launch: which has started the other ranks; None to start them here.
    Raises ConfigError, ModelError, PartError, KernelError, or RankError if others do not come.
    """
    here = None if launch is None else launch.local_size
    use_threads(config.threads, config.num_ranks if here is None else here)
    device = resolve_device(config)
    check_devices(config, device, here)
    if config.num_ranks == 1:
        loader = _loader(config)
        backend = _backend(config, loader)
        if config.speculate == "mtp" and loader.brings_head:
            check_own_head(config, loader)
        return backend, _load(loader, backend), None
    # What cannot be split starts no process. Those that a launcher has started wait for rank 0, and it
    # tells them what it refuses.
    refused_first = _loader(config) if launch is None else None
    ranks = RankExecutor(config, launch)  # whose processes import while this one goes on
    try:
        loader = refused_first or _loader(config)
        backend = _backend(config, loader)
        loader.fetch()  # or every rank would
        ranks.meet(backend, use_device(device, 0 if launch is None else launch.local_rank))
        return backend, _load(loader, backend, ranks), ranks
    except BaseException:
        ranks.close()
        raise


def _loader(config: EngineConfig) -> ModelLoader:
    """What the model is is known, that it can be split, and no weight has been read."""
    loader = ModelLoader(config)
    loader.check_ranks(config)
    if loader.keeps_states:
        check_states(config, loader.architecture, loader.brings_head)
    return loader


def _backend(config: EngineConfig, loader: ModelLoader) -> Backend:
    """Ready for what the model is."""
    packed = loader.is_packed or draft_is_packed(config)
    stateful = loader.keeps_states
    backend = choose_backend(
        config, loader.device, loader.head_dims, packed=packed, stateful=stateful
    )
    check_deterministic(config, backend.name, loader.device)
    backend.prepare(loader.device)
    return backend


def _load(loader: ModelLoader, backend: Backend, ranks: RankExecutor | None = None) -> LoadedModel:
    return loader.load(
        backend.make_ops(),
        backend.dtypes,
        partial(backend.make_packed_gemm, loader.device),
        None if ranks is None else ranks.shard,
        None if ranks is not None else partial(backend.make_block_gemm, loader.device),
    )
