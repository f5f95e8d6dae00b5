"""Whether steps are replayed, decided at start: by the setting, the backend, and a trial.

A part may do what a graph cannot hold: read a value back, or decide by one on the host. Recording then
fails, or the replay gives something else. Then steps are computed launch by launch, and the start says
why.
"""

import time
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import torch

from yaie.backends.base import Backend
from yaie.core.config import EngineConfig
from yaie.core.contracts.graphs import DecodeSteps
from yaie.core.errors import ConfigError
from yaie.core.step import Fault
from yaie.parts import Parts
from yaie.worker.graphs import RecordedMixed, device_for
from yaie.worker.mixed import MixedSteps, chunk_zones, decode_zones
from yaie.worker.padded import PaddedMachine
from yaie.worker.progress import bar
from yaie.worker.warmup import WarmupError, tried
from yaie.worker.worker import Worker

TRIED_SIZE = 4
"""Requests of the trial. It shows what a part does, not what it does at every size."""
TRIED_TOKENS = 512


class PaddedSteps(NamedTuple):
    """What carries out padded steps, None for none; note: a sentence about it, or ""."""

    decodes: DecodeSteps | None
    mixed: MixedSteps | None
    note: str = ""


def padded_steps(config: EngineConfig, backend: Backend, worker: Worker) -> PaddedSteps:
    """What a worker's steps are carried out by.

    Raises ConfigError for graphs or padding that the setting demands and that cannot be had.
    """
    mode, on_gpu = config.graphs, worker.device.type == "cuda"
    if mode == "off" or (mode == "auto" and not on_gpu):
        return PaddedSteps(None, None)
    if mode != "padded" and not on_gpu:
        return _refused(config, "CUDA graphs need a GPU")
    if config.deterministic and backend.invariant_gemm is None:
        return _refused(config, "deterministic steps are not padded")
    if not backend.may_be_captured:
        why = f"with backend {backend.name!r}, {backend.why_not_captured}"
        return _refused(config, why, _how_to_capture(backend, on_gpu))
    budget = config.step_tokens(worker.device.type)
    drafts = config.speculate != "off"
    make = partial(_made, backend.parts, worker, config.max_num_seqs, budget, drafts=drafts)
    if mode == "padded":
        return make(records=False)
    why = _why_not(backend.parts, worker, min(TRIED_SIZE, config.max_num_seqs))
    # Or one would record, step by step, while another waits for the first request.
    agreed = worker.adapter.shard.all_agree(not why, worker.device)
    if why or not agreed:
        return _refused(config, why or "they cannot be on another rank")
    steps = make(records=True)
    if mode == "lazy":
        return steps._replace(note="CUDA graphs of steps are recorded when they are first needed")
    return steps._replace(note=_prepared(steps, worker.device))


def _how_to_capture(backend: Backend, on_gpu: bool) -> str:
    """The setting with which kernels compute the whole step. It is "" if there is none: the backend has
    kernels already, but `mine` names parts in PyTorch, or the model's heads are too wide for them."""
    if backend.name not in ("torch", "cpu", "flashinfer"):
        return ""
    where = "" if on_gpu else " (on a CPU with TRITON_INTERPRET=1 in the environment)"
    return f"Add --backend triton{where}, or leave graphs to auto."


def _refused(config: EngineConfig, why: str, fix: str = "") -> PaddedSteps:
    if config.graphs != "auto":
        raise ConfigError(
            f"graphs {config.graphs!r} cannot be had: {why}. {fix or 'Leave graphs to auto.'}",
            param="graphs",
        )
    return PaddedSteps(None, None, f"steps are launched kernel by kernel: {why}")


def _made(
    parts: Parts,
    worker: Worker,
    most_seqs: int,
    most_tokens: int,
    *,
    records: bool,
    drafts: bool = False,
    only: bool = False,
) -> PaddedSteps:
    """Decodes are lab 17's. drafts: whether requests are to have some. only: one size of each kind, the
    largest."""
    part, device = parts["cuda_graphs"], device_for(worker.device)
    machine = PaddedMachine(
        worker.adapter,
        worker.attention,
        worker.pool,
        worker.sampler,
        worker.split_sampler,
        worker.batch,
        worker.max_model_len,
        worker.device,
    )
    sizes, decodes, tokens = (
        list_[-1:] if only else list_
        for list_ in (
            part.padded_sizes(most_seqs),
            decode_zones(most_seqs, drafts=drafts),
            chunk_zones(most_tokens, drafts=drafts),
        )
    )
    pool: Any = device.pool() if records else None
    prepared: Callable[..., Any] = _launched
    if records:
        prepared = partial(RecordedMixed, device=device, memory=pool)
    return PaddedSteps(
        part.DecodeSteps(machine, device, sizes, records=records, pool=pool),
        MixedSteps(machine, decodes, tokens, prepared),
    )


def _launched(step: Any) -> Any:
    """A MixedStep that is launched kernel by kernel."""
    return step.forward


def _prepared(steps: PaddedSteps, device: torch.device) -> str:
    """Record every size, and tell of it. The largest come first: the others fit into what they took."""
    assert steps.decodes is not None
    assert steps.mixed is not None
    begin, before = time.perf_counter(), _used(device)
    work = chain(map(steps.mixed.prepare, steps.mixed.sizes), steps.decodes.prepare())
    count = len(steps.mixed.sizes) + len(steps.decodes.sizes)
    for _ in bar("Recording CUDA graphs")(range(count)):
        next(work)
    most, mixed = steps.decodes.sizes[-1], steps.mixed.sizes
    return (
        f"steps replay CUDA graphs: {len(steps.decodes.sizes)} sizes of decodes, up to {most} requests; "
        f"{len(mixed)} with prompts, up to {mixed[0].tokens:,} tokens "
        f"({max(0, _used(device) - before) / 2**30:.2f} GiB, {time.perf_counter() - begin:.1f} s)"
    )


def _used(device: torch.device) -> int:
    """Bytes of the device's memory in use, by any process."""
    if device.type != "cuda":
        return 0
    free, total = torch.cuda.mem_get_info(device)
    return total - free


def _why_not(parts: Parts, worker: Worker, size: int) -> str:
    """Why steps cannot be replayed, or "" if a few came out the same, to the last bit."""
    try:
        results = []
        for records in (False, True):
            steps = _made(parts, worker, size, TRIED_TOKENS, records=records, only=True)
            worker.decodes, worker.mixed = steps.decodes, steps.mixed
            results.append(tried(worker, size))
    except WarmupError as error:
        return _in_words(error.fault)
    finally:
        worker.decodes = worker.mixed = None
    expected, replayed = results
    return "" if replayed == expected else "a replayed step differs from the one that was recorded"


def _in_words(fault: Fault) -> str:
    whose = f"your part {fault.lab}" if fault.lab else "the model"
    where = f" ({fault.where})" if fault.where else ""
    return f"{whose} cannot be captured: {fault.message.splitlines()[0]}{where}"
