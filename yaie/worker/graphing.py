"""Whether decode steps are replayed, decided at start: by the setting, the backend, and a trial.

A part may do what a graph cannot hold: read a value back, or decide by one on the host. Recording then
fails, or the replay gives something else. Then steps are computed launch by launch, and the start says
why.
"""

from collections.abc import Sequence

from yaie.backends.base import Backend
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.core.step import Fault
from yaie.worker.graphs import DecodeSteps
from yaie.worker.padded import DecodeMachine, padded_sizes
from yaie.worker.progress import bar
from yaie.worker.rehearsal import RehearsalError, tried
from yaie.worker.worker import Worker

TRIED_SIZE = 4
"""Requests of the trial. It shows what a part does, not what it does at every size."""


def decode_steps(
    config: EngineConfig, backend: Backend, worker: Worker
) -> tuple[DecodeSteps | None, str]:
    """(what carries out decode steps, or None; a sentence about it, or "").

    Raises ConfigError for graphs or padding that the setting demands and that cannot be had.
    """
    mode, on_gpu = config.graphs, worker.device.type == "cuda"
    if mode == "off" or (mode == "auto" and not on_gpu):
        return None, ""
    if mode != "padded" and not on_gpu:
        return _refused(config, "CUDA graphs need a GPU")
    if config.deterministic:
        return _refused(config, "deterministic steps are not padded")
    if not backend.may_be_captured:
        return _refused(config, f"with backend {backend.name!r}, PyTorch computes attention or ops")
    if mode == "padded":
        return _made(worker, padded_sizes(config.max_num_seqs), records=False), ""
    if why := _why_not(worker, min(TRIED_SIZE, config.max_num_seqs)):
        return _refused(config, why)
    steps = _made(worker, padded_sizes(config.max_num_seqs), records=True)
    if mode == "lazy":
        return steps, "CUDA graphs of decode steps are recorded when they are first needed"
    steps.prepare(bar("Recording CUDA graphs"))
    return steps, (
        f"decode steps replay CUDA graphs of {len(steps.sizes)} sizes, up to {steps.sizes[-1]} requests "
        f"({steps.num_bytes / 2**30:.2f} GiB, {steps.seconds:.1f} s)"
    )


def _refused(config: EngineConfig, why: str) -> tuple[None, str]:
    if config.graphs != "auto":
        raise ConfigError(
            f"graphs {config.graphs!r} cannot be had: {why}. Leave graphs to auto.", param="graphs"
        )
    return None, f"decode steps are launched kernel by kernel: {why}"


def _made(worker: Worker, sizes: Sequence[int], *, records: bool) -> DecodeSteps:
    machine = DecodeMachine(
        worker.adapter,
        worker.attention,
        worker.pool,
        worker.sampler,
        worker.seats,
        worker.sampling,
        worker.max_model_len,
        worker.device,
    )
    return DecodeSteps(machine, sizes, records=records)


def _why_not(worker: Worker, size: int) -> str:
    """Why steps cannot be replayed, or "" if a few came out the same, to the last bit."""
    try:
        worker.decodes = _made(worker, [size], records=False)
        expected = tried(worker, size)
        worker.decodes = _made(worker, [size], records=True)
        replayed = tried(worker, size)
    except RehearsalError as error:
        return _in_words(error.fault)
    finally:
        worker.decodes = None
    return "" if replayed == expected else "a replayed step differs from the one that was recorded"


def _in_words(fault: Fault) -> str:
    whose = f"your part {fault.lab}" if fault.lab else "the model"
    where = f" ({fault.where})" if fault.where else ""
    return f"{whose} cannot be captured: {fault.message.splitlines()[0]}{where}"
