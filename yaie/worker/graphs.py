"""CUDA graphs of decode steps: recorded once for each size, and launched whole from then on.

A step of a small model is a few hundred kernels of some microseconds each. Launched one by one from
Python they take longer than they run. A graph holds all of them with their arguments, so that a step is
an upload, a launch and a download.

Two graphs make a decode step: one up to the logits, one that draws. A step that needs more than a draw
(a grammar's mask, penalties, log-probabilities) replays the first and samples one call at a time. A step
with chunks has one graph (see `mixed`).
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from yaie.core.step import StepInput
from yaie.worker.mixed import MixedStep
from yaie.worker.padded import FIELDS, PaddedMachine, PaddedStep, fill, idle


class Recording:
    """A PaddedStep in two graphs. Replays read and write the memory that recording it used."""

    def __init__(self, step: PaddedStep, memory: Any) -> None:
        """memory: the pool that all recordings share, since only one of them runs at a time. Raises
        whatever the step does, which must have run before: nothing may be compiled in a recording."""
        self._step = step  # its constants are read in every replay
        self.inputs = step.inputs
        self._forward, self._draw = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        logits = record(self._forward, memory, step.forward)
        self._drawn = record(self._draw, memory, lambda: step.draw(logits))
        # Kept as an address, not as a tensor: the next recording may use the same memory.
        self._logits = _same_memory(logits)

    def forward(self) -> Tensor:
        """See PaddedStep; valid until another recording is replayed."""
        self._forward.replay()
        return self._logits

    def draw(self, logits: Tensor) -> Tensor:
        """See PaddedStep. logits: what `forward` returned."""
        self._draw.replay()
        return self._drawn


def record(graph: Any, memory: Any, work: Callable[[], Tensor]) -> Tensor:
    """Record what `work` launches. Raises what it raises, not what the recording has to say of that."""
    failures: list[Exception] = []
    try:
        with torch.cuda.graph(graph, pool=memory):
            try:
                return work()
            except Exception as error:
                failures.append(error)
                raise
    except Exception as error:  # noqa: BLE001, it is raised
        raise (failures or [error])[0] from None


class RecordedMixed:
    """A MixedStep in a graph. Calling it replays its `forward`."""

    def __init__(self, step: MixedStep, memory: Any) -> None:
        """memory: see `Recording`."""
        self._step = step
        self._graph = torch.cuda.CUDAGraph()
        step.forward()  # compiles what has not been yet
        self._hidden = _same_memory(record(self._graph, memory, step.forward))

    def __call__(self) -> Tensor:
        """See MixedStep; valid until another recording is replayed."""
        self._graph.replay()
        return self._hidden


class _Memory:
    """An address as PyTorch takes it from other libraries."""

    def __init__(self, tensor: Tensor) -> None:
        self.__cuda_array_interface__ = {
            "data": (tensor.data_ptr(), False),
            "shape": tuple(tensor.shape),
            "strides": None,
            "typestr": f"<i{tensor.itemsize}",
            "version": 3,
        }


def _same_memory(tensor: Tensor) -> Tensor:
    """A tensor over the memory of a contiguous one, which it does not keep alive."""
    if not tensor.is_contiguous():
        raise ValueError("what is replayed must lie in one piece")
    as_integers = tensor.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.itemsize])
    there: Tensor = torch.as_tensor(_Memory(as_integers), device=tensor.device)
    return there.view(tensor.dtype)


class DecodeSteps:
    """Carries out decode steps of up to `sizes[-1]` requests, padded to one of `sizes`.

    records: whether as graphs; otherwise launch by launch, the same kernels on the same rows.
    """

    def __init__(
        self, machine: PaddedMachine, sizes: Sequence[int], *, records: bool, pool: Any = None
    ) -> None:
        """pool: memory that all recordings share, since only one of them runs at a time."""
        self._machine = machine
        self._sizes = list(sizes)
        self._records = records
        # The largest comes first and the others fit into what it took.
        self._memory = torch.zeros(
            FIELDS * self._sizes[-1], dtype=torch.int32, device=machine.device
        )
        self._pool = pool
        self._ready: dict[int, PaddedStep | Recording] = {}
        self._current: PaddedStep | Recording
        self._logits: Tensor

    @property
    def sizes(self) -> Sequence[int]:
        """Ascending."""
        return self._sizes

    def prepare(self, size: int) -> None:
        """Make ready for steps of a size, which otherwise happens when it is first met."""
        self._made(size)

    def takes(self, step: StepInput) -> bool:
        """Whether a step is one that this carries out: a token for each request, drawn before, and
        another to be drawn."""
        if len(step.seats) > self._sizes[-1] or len(step.drafts):
            return False
        if len(step.prompt_logprobs) or len(step.pooled):
            return False
        if step.num_tokens[-1] != 1 or not step.samples.all():  # single tokens come first
            return False
        return bool((step.starts >= self._machine.seats.num_known[step.seats]).all())

    def forward(self, step: StepInput) -> Tensor:
        """Queue the step up to its logits [n, vocab], which hold until the next step."""
        n, seats = len(step.seats), self._machine.seats
        size = self._sizes[bisect_left(self._sizes, n)]
        entries = step
        if len(step.table_seats) > size:  # requests that come back from the host bring whole tables
            seats.extend_tables(step)
            entries = StepInput(step.step, step.seats, step.starts, step.num_tokens, step.samples)
        self._current = self._made(size)
        pinned = torch.empty(
            (FIELDS, size), dtype=torch.int32, pin_memory=self._machine.device.type == "cuda"
        )
        slots = seats.slots(step.seats, step.starts, self._machine.pool.block_size)
        fill(pinned.numpy(), entries, slots, seats.nobody)
        self._current.inputs.copy_(pinned, non_blocking=True)
        self._logits = self._current.forward()
        return self._logits[:n]

    def draw(self, n: int) -> Tensor:
        """Queue the draws [n] int64 of the step whose logits were made last."""
        return self._current.draw(self._logits)[:n]

    def _made(self, size: int) -> PaddedStep | Recording:
        if size not in self._ready:
            step = PaddedStep(size, self._machine, self._memory)
            self._ready[size] = self._recorded(step) if self._records else step
        return self._ready[size]

    def _recorded(self, step: PaddedStep) -> Recording:
        # Rows of nobody: what has not been compiled yet is, and no seat moves.
        step.inputs.copy_(torch.from_numpy(idle(step.size, self._machine.seats.nobody)))
        step.draw(step.forward())
        return Recording(step, self._pool)
