"""What is wrong with a plan: the field of a group that spoils the output of the reference's `run`."""

from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from grader.kit.poison import poisoned
from grader.kit.script import show
from grader.suites.radix_attention.batches import SPEC, Case, attention_of
from solutions.radix_attention import RadixAttention
from solutions.radix_attention.radix_attention import AttentionPlan, Group
from solutions.transformer_ops import TransformerOps

PROMISES = {
    "kv_lens": "`kv_lens` are the key lengths of the group's own sequences, in its order.",
    "num_queries": "`num_queries` is how many queries each sequence of the group has.",
    "rows": "`rows` says where the queries of the group's sequences are in the flat batch. A sequence's "
    "queries begin behind those of all sequences before it in the batch.",
    "block_tables": "`block_tables` are those of the group's own sequences, in its order, as wide as "
    "the longest of them needs: its keys in whole blocks, a last block that is begun included.",
    "unused": "`unused` are the slots of what is gathered that hold no key of their sequence. Row i of "
    "the group's n has m * block_size slots, from i * m * block_size on, and its keys come first.",
}
"""Of each field of a group, those first that others are made of."""


class WrongField(NamedTuple):
    """members: the sequences of the group. Texts for a report."""

    members: list[int]
    name: str
    expected: str
    got: str

    @property
    def problem(self) -> str:
        who = "sequence" if len(self.members) == 1 else "sequences"
        names = ", ".join(map(str, self.members))
        return f"`{self.name}` in the plan's group of {who} {names} is wrong"


def wrong_field(part: ModuleType, case: Case) -> WrongField | None:
    """The first field that alone, put into a plan that is right otherwise, spoils the output. None if
    there is none, if `plan` raises, or if it makes no plan as the stub says."""
    mine = case.of(list(range(len(case.seqs))))
    module = getattr(part, "radix_attention", None)
    batch, expected = mine.batch, mine.expected()
    try:
        plan = attention_of(part, mine.pool).plan(batch)
        if not isinstance(plan, module.AttentionPlan):  # type: ignore[union-attr]
            return None
        members = [list(group) for group in module.groups_of(batch)]  # type: ignore[union-attr]
        if len(plan.groups) != len(members):
            return None
    except Exception:  # noqa: BLE001, whatever a part raises
        return None
    reference = RadixAttention(mine.pool, TransformerOps())
    right = [reference._group(batch, each) for each in members]
    for name in PROMISES:
        for number, (own, group) in enumerate(zip(plan.groups, right, strict=True)):
            mixed = _with(right, number, name, own)
            value, wanted = getattr(own, name, None), getattr(group, name)
            if mixed is None or _spoils(
                mine, reference, AttentionPlan(batch.slot_mapping, mixed), expected
            ):
                return WrongField(members[number], name, _shown(wanted), _shown(value))
    return None


def _with(groups: list[Group], number: int, name: str, own: Any) -> list[Group] | None:
    """The groups, one of them with a field of the learner's; None if that has no such field."""
    if not hasattr(own, name):
        return None
    mixed = [replace(group, masks={}) for group in groups]
    mixed[number] = replace(mixed[number], **{name: getattr(own, name)})
    return mixed


def _spoils(case: Case, reference: RadixAttention, plan: AttentionPlan, expected: Tensor) -> bool:
    try:
        with poisoned():  # a row that nobody writes may hold the right numbers of an earlier run
            out = reference.run(0, *case.qkv, SPEC, plan)
    except Exception:  # noqa: BLE001, whatever comes of such a plan
        return True
    return not torch.allclose(out, expected, rtol=1e-9, atol=1e-9)


def _shown(value: Any) -> str:
    if isinstance(value, slice):
        return f"slice({value.start}, {value.stop})"
    if not isinstance(value, Tensor):
        return show(value)
    kind = "" if value.dtype == torch.int64 else f", {str(value.dtype).removeprefix('torch.')}"
    return f"{show(value.tolist())}{kind}"
