"""Batches for layers with a state, drawn at random, and what must come of them, in float64."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor

from yaie.backends.states.naive import NaiveStateOps
from yaie.core.contracts.states import StateBatch, StateOps

LENGTHS = (1, 2, 5, 9, 63, 64, 65, 130)
SLOTS = 12
NOBODY = SLOTS - 1
"""The slot of padding."""
DECAYS = (0.0, 1e-3, 0.1, 2.0, 100.0)
BETAS = (0.0, 0.3, 1.0, 2.0)


class Shape(NamedTuple):
    """lens: of the sequences. is_fresh: of each. padding: sequences of no request. behind: rows of no
    sequence; if there are any, the host knows bounds of lengths alone. heads: of keys, or groups. group:
    heads of each. d, d_state: sides of a head's state."""

    lens: list[int]
    is_fresh: list[bool]
    padding: int
    behind: int
    heads: int
    group: int
    d: int
    d_state: int
    seed: int


@st.composite
def shapes(draw: Any, lengths: tuple[int, ...] = LENGTHS, most: int = 3) -> Shape:
    """Decodes alone in one case of three."""
    only = (1,) if draw(st.integers(0, 2)) == 0 else lengths
    lens = draw(st.lists(st.sampled_from(only), min_size=1, max_size=most))
    is_single = only == (1,)
    return Shape(
        lens=lens,
        is_fresh=draw(st.lists(st.booleans(), min_size=len(lens), max_size=len(lens))),
        padding=draw(st.integers(0, 2)),
        behind=0 if is_single else draw(st.integers(0, 3)),
        heads=draw(st.integers(1, 2)),
        group=draw(st.integers(1, 3)),
        d=draw(st.sampled_from((4, 16, 24))),
        d_state=draw(st.sampled_from((8, 16, 40))),
        seed=draw(st.integers(0, 2**16)),
    )


@dataclass(frozen=True)
class Case:
    """A call of a rule. tokens: its tensors with a row a token, by name. others: those without."""

    rule: str
    tokens: dict[str, Tensor]
    others: dict[str, Any]
    pool: Tensor
    batch: StateBatch
    rows: int
    """Of sequences, padding included."""

    def run(self, ops: StateOps, pool: Tensor) -> Tensor:
        method: Callable[..., Tensor] = getattr(ops, self.rule)
        return method(**self.tokens, **self.others, pool=pool, batch=self.batch)

    def expected(self) -> tuple[Tensor, Tensor]:
        """What comes out and the pool behind it, in float64."""
        double = replace(
            self,
            tokens=_doubled(self.tokens),
            others=_doubled(self.others),
            pool=self.pool.double(),
        )
        return double.run(NaiveStateOps(), double.pool), double.pool

    def part(self, first: list[int], last: list[int]) -> tuple["Case", Tensor]:
        """Of each sequence the tokens from `first` up to `last`, and their rows in the whole. What
        begins behind its first token goes on."""
        starts = self.batch.starts.tolist()
        spans = [range(s + a, s + b) for s, a, b in zip(starts, first, last, strict=False)]
        rows = torch.tensor([row for span in spans for row in span], dtype=torch.int64)
        rows = rows.to(self.pool.device)
        lens = [len(span) for span in spans]
        batch = StateBatch(
            lens,
            torch.tensor([0, *lens]).cumsum(0).int().to(rows.device),
            self.batch.slots,
            self.batch.is_fresh & torch.tensor([a == 0 for a in first], device=rows.device),
        )
        tokens = {name: one[rows] for name, one in self.tokens.items()}
        return replace(self, tokens=tokens, batch=batch, rows=sum(lens)), rows


def _doubled(tensors: dict[str, Any]) -> dict[str, Any]:
    return {name: one.double() if isinstance(one, Tensor) else one for name, one in tensors.items()}


def make_case(
    rule: str,
    shape: Shape,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    silu: bool = False,
) -> Case:
    """What no sequence of the batch may read is NaN: the slots of others, and what lies in fresh ones.
    Tensors with a row a token are cut from wider ones."""
    generator = torch.Generator().manual_seed(shape.seed)

    def randn(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=generator)

    single = all(length == 1 for length in shape.lens) and not shape.behind
    lens = [*shape.lens, *[int(single)] * shape.padding]
    rows = sum(lens) + shape.behind
    slots = [*torch.randperm(SLOTS - 1, generator=generator)[: len(shape.lens)].tolist()]
    slots += [NOBODY] * shape.padding
    is_fresh = [*shape.is_fresh, *[True] * shape.padding]

    def cut(*sizes: int, is_unit: bool = False) -> Tensor:
        wide = randn(rows, sizes[0] + 1, *sizes[1:])
        return (F.normalize(wide, dim=-1) if is_unit else wide).to(dtype).to(device)[:, 1:]

    def chosen(values: tuple[float, ...], heads: int) -> Tensor:
        index = torch.randint(len(values), (rows, heads + 1), generator=generator)
        return torch.tensor(values)[index].to(device)[:, 1:]

    heads, all_heads, d, d_state = shape.heads, shape.heads * shape.group, shape.d, shape.d_state
    others: dict[str, Any]
    if rule == "short_conv":
        channels, width = all_heads * d, 2 + shape.seed % 3
        tokens = {"x": cut(channels)}
        weight, bias = randn(channels, width), randn(channels) if shape.seed % 2 else None
        others = {"weight": weight.to(dtype), "bias": bias if bias is None else bias.to(dtype)}
        pool, others["silu"] = randn(SLOTS, channels, width - 1).to(dtype), silu
    elif rule == "gated_delta_rule":
        tokens = {
            "q": cut(heads, d_state),
            "k": cut(heads, d_state, is_unit=True),
            "v": cut(all_heads, d),
            "log_decay": -chosen(DECAYS, all_heads),
            "beta": chosen(BETAS, all_heads),
        }
        others, pool = {}, randn(SLOTS, all_heads, d_state, d)
    else:
        tokens = {
            "x": cut(all_heads, d),
            "dt": chosen((0.0, 0.01, 0.5, 3.0), all_heads),
            "b": cut(heads, d_state),
            "c": cut(heads, d_state),
        }
        a = -chosen(DECAYS[1:], all_heads)[0]
        others = {"a": a, "d": randn(all_heads) if shape.seed % 2 else None}
        pool = randn(SLOTS, all_heads, d, d_state)
    live = [s for s, fresh in zip(slots, is_fresh, strict=True) if not fresh]
    pool[[slot for slot in range(SLOTS) if slot not in live]] = torch.nan
    bounds = [2 * length + 2 for length in lens] if shape.behind else lens
    batch = StateBatch(
        bounds,
        torch.tensor([0, *lens]).cumsum(0).int().to(device),
        torch.tensor(slots, device=device),
        torch.tensor(is_fresh, device=device),
    )
    others = {
        name: one.to(device) if isinstance(one, Tensor) else one for name, one in others.items()
    }
    return Case(rule, tokens, others, pool.to(device), batch, sum(lens))
