# ORACLE
"""Steps as they were before graphs: a launch for each kernel, a batch as large as the step, and every
token by way of the host."""

import numpy as np
import torch
from torch import Tensor

from yaie.core.batch import AttentionBatch
from yaie.core.contracts.graphs import StepMachine
from yaie.core.step import StepInput


class EagerSteps:
    """Carries out steps of any size. Each waits for its tokens before the next can begin."""

    def __init__(self, machine: StepMachine) -> None:
        self._machine = machine

    def run(self, step: StepInput) -> tuple[Tensor, list[int]]:
        """The hidden states [T, hidden] of a step, and what is drawn for each seat that samples."""
        machine = self._machine
        machine.extend_tables(step)
        tokens = [
            token if token >= 0 else int(machine.last_tokens[~token])
            for token in machine.token_ids(step).tolist()
        ]
        lens, kv_lens = step.num_tokens, step.starts + step.num_tokens
        batch = AttentionBatch(
            query_lens=lens.tolist(),
            kv_lens=kv_lens.tolist(),
            query_start_loc=torch.tensor([0, *np.cumsum(lens).tolist()], dtype=torch.int32),
            seq_lens=torch.from_numpy(kv_lens),
            block_tables=machine.tables[torch.from_numpy(step.seats.astype(np.int64))],
            slot_mapping=torch.from_numpy(machine.slots(step).astype(np.int64)),
            positions=torch.from_numpy(step.positions.astype(np.int64)),
        )
        hidden = machine.hidden(torch.tensor(tokens), batch)
        return hidden, draw_one_by_one(machine, step, hidden)


def draw_one_by_one(machine: StepMachine, step: StepInput, hidden: Tensor) -> list[int]:
    """Draw for the seats that sample, each from the state of its last token, and move them on."""
    seats = torch.from_numpy(step.seats[step.samples].astype(np.int64))
    if not len(seats):
        return []
    lasts = torch.from_numpy(np.cumsum(step.num_tokens)[step.samples] - 1)
    drawn: list[int] = machine.sample(machine.logits(hidden[lasts]), seats).tolist()
    for seat, token in zip(seats.tolist(), drawn, strict=True):
        machine.last_tokens[seat] = max(0, token)
    machine.count_draws(seats)
    return drawn
