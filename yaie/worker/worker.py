"""`Worker`: carries out steps on one device, as they come in, in the thread that calls it."""

from collections.abc import Callable

import torch

from yaie.core.contracts import BatchAttention, KVPool, Sampler
from yaie.core.contracts.drafting import Accepted
from yaie.core.contracts.graphs import DecodeSteps, MakeToHost
from yaie.core.step import Fault, StepInput
from yaie.models.adapter import ModelAdapter
from yaie.worker.mixed import MixedSteps
from yaie.worker.mtp import MtpDrafts
from yaie.worker.running_step import RunningStep
from yaie.worker.sampling import SamplingState
from yaie.worker.seats import Seats
from yaie.worker.staged import Stage, StagedStep


class Worker:
    """See `yaie.core.contracts.Worker`. It owns model, attention, pool and sampler, and the seats'
    state.

    On a GPU `execute` returns once everything is queued there; on a CPU once it is computed.
    `decodes` and `mixed` may be set: they then carry out the steps that they take. note: what to know of
    that. `mtp` may be set: it then drafts behind the steps that ask for it.
    `split_sampler` may be set where ranks split the vocabulary: it then draws the rows without filters
    and penalties, from this rank's logits.
    """

    def __init__(
        self,
        adapter: ModelAdapter,
        attention: BatchAttention,
        pool: KVPool,
        sampler: Sampler,
        device: torch.device,
        *,
        num_seats: int,
        max_model_len: int,
        explain: Callable[[BaseException], Fault],
        to_host: MakeToHost,
        accepted: Accepted,
    ) -> None:
        """explain: an exception as data, which tells whose code it came from. to_host: begins to copy a
        tensor to the host (lab 17). accepted: which samples count (lab 18).

        `before_forward` may be set: it is called when all is ready for a step's model.
        """
        self.adapter = adapter
        self.attention = attention
        self.pool = pool
        self.sampler = sampler
        self.device = device
        self.explain = explain
        self.to_host = to_host
        self.accepted = accepted
        self.before_forward: Callable[[], None] = _nothing
        self.decodes: DecodeSteps | None = None
        self.mixed: MixedSteps | None = None
        self.mtp: MtpDrafts | None = None
        self.split_sampler: Sampler | None = None
        self.note = ""
        passing = adapter.shard.passing
        self.stage = None if passing is None else Stage(passing)
        self.max_model_len = max_model_len
        self.seats = Seats(num_seats, -(-max_model_len // pool.block_size), device)
        self.sampling = SamplingState(num_seats + 1, adapter.vocab_size, device)

    def execute(self, step: StepInput) -> RunningStep | StagedStep:
        """Begin a step. What it raises becomes the fault of its result."""
        if self.stage is not None:
            staged = StagedStep(self, self.stage, step)
            staged.begin()
            return staged
        running = RunningStep(self, step)
        running.guarded(running.begin)
        return running

    def close(self) -> None:
        """Drop recorded steps: what they hold of other ranks can then be given back."""
        self.decodes = self.mixed = None


def _nothing() -> None:
    pass
