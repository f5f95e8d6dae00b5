# ORACLE
"""Decode steps as they were before graphs: a launch for each kernel, a batch as large as the step, and
every token by way of the host."""

import numpy as np
import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch
from yaie.core.contracts.graphs import StepMachine
from yaie.core.step import StepInput


class EagerSteps:
    """Carries out decode steps of any size. Each waits for its tokens before the next can begin."""

    def __init__(self, machine: StepMachine) -> None:
        self._machine = machine

    def run(self, step: StepInput) -> tuple[Tensor, list[int]]:
        """The logits [n, vocab] of a step of single tokens, and what is drawn for each."""
        machine = self._machine
        machine.extend_tables(step)
        seats = torch.from_numpy(step.seats.astype(np.int64))
        tokens = [int(machine.last_tokens[seat]) for seat in step.seats.tolist()]
        batch = AttentionBatch(
            query_lens=[1] * len(tokens),
            kv_lens=(step.starts + 1).tolist(),
            query_start_loc=torch.arange(len(tokens) + 1, dtype=torch.int32),
            seq_lens=torch.from_numpy(step.starts + 1),
            block_tables=machine.tables[seats],
            slot_mapping=torch.from_numpy(machine.slots(step).astype(np.int64)),
            positions=torch.from_numpy(step.starts.astype(np.int64)),
        )
        logits = machine.logits(torch.tensor(tokens), batch)
        drawn = machine.sample(logits, seats).tolist()
        for seat, token in zip(step.seats.tolist(), drawn, strict=True):
            machine.last_tokens[seat] = max(0, token)
        machine.count_draws(seats)
        return logits, drawn
