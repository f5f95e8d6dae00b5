"""What changes logits before the sampler draws, or how it draws from them, where a request asks for it.

A request says so when it enters (`NewSeats.extras`): its key names the rule here, which is made then. In
this order rules are applied; what a grammar allows (`masks.py`) comes last, because it comes with the
step and not with the request. A further rule is a class in a file of its own, and a line here.
"""

import torch

from yaie.core.step import NewSeats
from yaie.worker.rules.base import LogitsRule
from yaie.worker.rules.biases import Biases
from yaie.worker.rules.min_tokens import MinTokens
from yaie.worker.rules.penalties import Penalties

RULES: dict[str, type[LogitsRule]] = {rule.name: rule for rule in (Biases, MinTokens, Penalties)}


def entered(
    rules: dict[str, LogitsRule],
    new: NewSeats,
    num_seats: int,
    vocab_size: int,
    device: torch.device,
) -> dict[str, LogitsRule]:
    """The rules that some seat asks for once `new` have entered. rules: before that."""
    for name in new.extras:
        if name not in rules:
            rules[name] = RULES[name](num_seats, vocab_size, device)
    for rule in rules.values():
        rule.enter(new)
    return {name: rules[name] for name in RULES if name in rules and rules[name].asks.any()}
