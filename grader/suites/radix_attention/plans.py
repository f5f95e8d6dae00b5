"""What is wrong with a plan: the field of a group that spoils the output of the reference's `run`."""

from contextlib import suppress
from dataclasses import replace
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from grader.kit.poison import poisoned
from grader.kit.script import MOST_ITEMS, show
from grader.suites.radix_attention.batches import SPEC, Case, attention_of
from grader.suites.radix_attention.words import in_order, slots_apart, spans
from solutions.radix_attention import RadixAttention
from solutions.radix_attention.radix_attention import AttentionPlan, Group
from solutions.transformer_ops import TransformerOps

PROMISES = {
    "kv_lens": "`kv_lens` are the key lengths of the group's own sequences, in its order.",
    "num_queries": "`num_queries` is how many queries each sequence of the group has.",
    "rows": "`rows` says where the queries of the group's sequences are in the flat batch. A sequence's "
    "queries begin behind those of all sequences before it in the batch.",
    "block_tables": "`block_tables` are those of the group's own sequences, in its order.",
    "unused": "`unused` are the slots of what is gathered that hold no key of their sequence. Row i of "
    "the group's n has m * block_size slots, from i * m * block_size on, and its keys come first.",
}
"""Of each field of a group, those first that others are made of."""
WIDTH = (
    "The group's table is {got} wide. It must be as wide as its longest sequence needs, here {right}: "
    "its keys in whole blocks, a last block that is begun included."
)


OF_MORE_BLOCKS = (
    "These slots are counted as if {got} blocks were gathered for each sequence. {name} {keys} keys "
    "need {right} of {size} slots, the quotient rounded up."
)


class WrongField(NamedTuple):
    """members: the sequences of the group. Texts for a report. why: what the value shows, if that is
    more than that it is wrong."""

    members: list[int]
    name: str
    expected: str
    got: str
    why: str

    @property
    def problem(self) -> str:
        who = "sequence" if len(self.members) == 1 else "sequences"
        return f"`{self.name}` in the plan's group of {who} {in_order(self.members)} is wrong"


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
                why = ""
                with suppress(Exception):  # what a part puts there may be anything
                    why = _why(name, members[number], value, group, mine.pool.block_size)
                texts = _shown(wanted), _shown(value)
                with suppress(Exception):
                    texts = _long(wanted.tolist(), getattr(own, name).tolist()) or texts
                return WrongField(members[number], name, *texts, why)
    return None


def _why(name: str, members: list[int], own: Any, right: Group, size: int) -> str:
    """What the field holds instead, and what it is for."""
    tables = right.block_tables
    if name == "unused":
        width, kv_lens = tables.shape[1] * size, right.kv_lens.tolist()
        blocks, rest = divmod(int(own.max()) + 1, size * len(members)) if len(own) else (0, 0)
        if blocks > tables.shape[1] and not rest:
            return OF_MORE_BLOCKS.format(
                name="Its" if len(members) == 1 else "The longest sequence's",
                got=blocks,
                keys=max(kv_lens),
                right=f"{tables.shape[1]} block{'s' * (tables.shape[1] != 1)}",
                size=size,
            )
        apart = slots_apart(own, right.unused, kv_lens, members, width, size)
        return " ".join([*apart, PROMISES[name]] if len(apart) < 2 else apart)
    if name == "block_tables" and own.shape[1] != tables.shape[1]:
        wide = [f"{table.shape[1]} block{'s' * (table.shape[1] != 1)}" for table in (own, tables)]
        return WIDTH.format(got=wide[0], right=wide[1])
    if name == "block_tables" and (others := _rows_of_others(own, tables, members)):
        return f"{others} {PROMISES[name]}"
    if name != "num_queries" and (bits := _bits_of(own, getattr(right, name))):
        return f"These are the right numbers in {bits} bits."
    return ""


def _bits_of(own: Any, right: Any) -> int:
    """In how many bits the right numbers are these; 0 if that is not what is wrong."""
    for kind, bits in ((torch.uint8, 8), (torch.int8, 8), (torch.int16, 16)):
        if isinstance(own, Tensor) and torch.equal(own.long(), right.to(kind).long()):
            return bits
    return 0


def _rows_of_others(own: Tensor, right: Tensor, members: list[int]) -> str:
    """Whose table the wrong rows hold, if they hold that of one other sequence."""
    wrong = [i for i in range(len(members)) if not torch.equal(own[i], right[i])]
    holders = [j for j in range(len(members)) if all(torch.equal(own[i], right[j]) for i in wrong)]
    if len(holders) != 1:
        return ""
    rows = f"Row {wrong[0]} holds" if len(wrong) == 1 else f"Rows {spans(wrong)} hold"
    return f"{rows} the table of sequence {members[holders[0]]}."


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


def _long(right: list[Any], own: list[Any]) -> tuple[str, str] | None:
    """Of long lists, what is from the first difference on; None if they are not so long."""
    if max(len(right), len(own)) <= MOST_ITEMS:
        return None
    pairs = enumerate(zip(right, own, strict=False))
    first = next((i for i, (one, other) in pairs if one != other), min(len(right), len(own)))
    right_, own_ = (
        f"{len(values):,} items, from index {first} on [{', '.join(map(str, values[first : first + 6]))}"
        f"{', ...' * (len(values) > first + 6)}]"
        for values in (right, own)
    )
    return right_, own_


def _shown(value: Any) -> str:
    if isinstance(value, slice):
        return f"slice({value.start}, {value.stop})"
    if not isinstance(value, Tensor):
        return show(value)
    kind = "" if value.dtype == torch.int64 else f", {str(value.dtype).removeprefix('torch.')}"
    return f"{show(value.tolist())}{kind}"
