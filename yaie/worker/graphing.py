"""Whether steps are replayed, decided at start: by the setting, the backend, and a trial.

A part may do what a graph cannot hold: read a value back, or decide by one on the host. Recording then
fails, or the replay gives something else. Then steps are computed launch by launch, and the start says
why.
"""

import time
from functools import partial

import torch

from yaie.backends.base import Backend
from yaie.core.config import EngineConfig
from yaie.core.contracts.graphs import GraphRunner
from yaie.core.errors import ConfigError
from yaie.core.step import Fault
from yaie.parts import Parts
from yaie.worker.graphs import device_for
from yaie.worker.progress import bar
from yaie.worker.warmup import WarmupError, tried
from yaie.worker.worker import Worker
from yaie.worker.zones import chunk_zones, decode_zones, sizes_of

TRIED_SIZE = 4
"""Requests of the trial. It shows what a part does, not what it does at every size."""
TRIED_TOKENS = 512


def graph_runner(
    config: EngineConfig, backend: Backend, worker: Worker
) -> tuple[GraphRunner | None, str]:
    """What carries out a worker's padded steps, None for nothing; and a sentence about it, or "".

    Raises ConfigError for graphs or padding that the setting demands and that cannot be had.
    """
    mode, on_gpu = config.graphs, worker.device.type == "cuda"
    if mode == "off" or (mode == "auto" and not on_gpu):
        return None, ""
    if mode != "padded" and not on_gpu:
        return _refused(config, "CUDA graphs need a GPU")
    if config.deterministic and backend.invariant_gemm is None:
        return _refused(config, "deterministic steps are not padded")
    if not backend.may_be_captured:
        why = f"with backend {backend.name!r}, {backend.why_not_captured}"
        return _refused(config, why, _how_to_capture(backend, on_gpu))
    budget = config.step_tokens(worker.device.type)
    drafts = config.speculate != "off"
    most = min(config.max_num_seqs, worker.batch.nobody // 2)  # fewer where states take much
    make = partial(_made, backend.parts, worker, most, budget, drafts=drafts)
    if mode == "padded":
        return make(records=False), ""
    why = _why_not(backend.parts, worker, min(TRIED_SIZE, most))
    # Or one would record, step by step, while another waits for the first request.
    agreed = worker.adapter.shard.all_agree(not why, worker.device)
    if why or not agreed:
        return _refused(config, why or "they cannot be on another rank")
    runner = make(records=True)
    if mode == "lazy":
        return runner, "CUDA graphs of steps are recorded when they are first needed"
    return runner, _prepared(runner, worker.device)


def _how_to_capture(backend: Backend, on_gpu: bool) -> str:
    """The setting with which kernels compute the whole step. It is "" if there is none: the backend has
    kernels already, but `mine` names parts in PyTorch, or the model's heads are too wide for them."""
    if backend.name not in ("torch", "cpu", "flashinfer"):
        return ""
    where = "" if on_gpu else " (on a CPU with TRITON_INTERPRET=1 in the environment)"
    return f"Add --backend triton{where}, or leave graphs to auto."


def _refused(config: EngineConfig, why: str, fix: str = "") -> tuple[None, str]:
    if config.graphs != "auto":
        raise ConfigError(
            f"graphs {config.graphs!r} cannot be had: {why}. {fix or 'Leave graphs to auto.'}",
            param="graphs",
        )
    return None, f"steps are launched kernel by kernel: {why}"


def _made(
    parts: Parts,
    worker: Worker,
    most_seqs: int,
    most_tokens: int,
    *,
    records: bool,
    drafts: bool = False,
    only: bool = False,
) -> GraphRunner:
    """drafts: whether requests are to have some. only: one size of each kind, the largest."""
    part, device = parts["cuda_graphs"], device_for(worker.device)
    machine = worker.padded_machine()
    numbers = (
        part.padded_sizes(most_seqs),
        decode_zones(most_seqs, drafts=drafts),
        chunk_zones(most_tokens, drafts=drafts),
    )
    sizes = sizes_of(*(list_[-1:] if only else list_ for list_ in numbers))
    pool = device.pool() if records else None
    runner: GraphRunner = part.GraphRunner(machine, device, sizes, records=records, pool=pool)
    return runner


def _prepared(runner: GraphRunner, device: torch.device) -> str:
    """Record every size, and tell of it. The largest come first: the others fit into what they took."""
    begin, before = time.perf_counter(), _used(device)
    sizes, work = runner.sizes, runner.prepare()
    for _ in bar("Recording CUDA graphs")(range(len(sizes))):
        next(work)
    alone = [size for size in sizes if not size.chunks]
    most = max(size.tokens for size in sizes)
    return (
        f"steps replay CUDA graphs: {len(alone)} sizes of decodes, up to {alone[-1].rows} requests; "
        f"{len(sizes) - len(alone)} with prompts, up to {most:,} tokens "
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
            worker.runner = _made(parts, worker, size, TRIED_TOKENS, records=records, only=True)
            results.append(tried(worker, size))
    except WarmupError as error:
        return _in_words(error.fault)
    finally:
        worker.runner = None
    expected, replayed = results
    return "" if replayed == expected else "a replayed step differs from the one that was recorded"


def _in_words(fault: Fault) -> str:
    whose = f"your part {fault.lab}" if fault.lab else "the model"
    where = f" ({fault.where})" if fault.where else ""
    return f"{whose} cannot be captured: {fault.message.splitlines()[0]}{where}"
