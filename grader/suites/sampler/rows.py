"""Rows of logits, batches of parameters, what must be kept of them, and statistics on draws."""

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from grader.kit import Mismatch, expect, expect_close, expect_equal, note, watch
from grader.kit.expect import claiming
from grader.kit.layout import padded
from grader.kit.script import current_script, resume_script, show, start_script
from solutions.sampler import filters, noise
from yaie.core.batch import PenaltyBatch, SamplingBatch
from yaie.core.params import SamplingParams

INF = math.inf
ROWS_APART = "Each row of a batch is another request: its parameters are no business of the others."
LAST = (
    "The batch's tensors are read only: later filters read them too (greedy rows are those whose "
    "temperature is 0), and the engine hands them over again at the next step."
)
GAPS = (
    "they are a slice of a wider tensor. The same call on the same logits without gaps goes well."
)
PASS_THROUGH = "A filter only rules out: what it keeps keeps its logit, what it drops becomes -inf."
GREEDY = SamplingParams(temperature=0)
PLAIN = SamplingParams()
FILTERED = SamplingParams(temperature=0.8, top_k=8, top_p=0.9, min_p=0.05)

ELSEWHERE = ("is not on the expected device", "to be on the same device")
"""What PyTorch says of an operation between tensors of two devices."""
MAKERS = {
    torch.arange,
    torch.empty,
    torch.full,
    torch.linspace,
    torch.ones,
    torch.rand,
    torch.tensor,
    torch.zeros,
}

MOST_ROWS_SHOWN = 6
TENSORS = ("temperature", "top_k", "top_p", "min_p", "seeds", "steps")
"""Of a SamplingBatch, one entry for each row."""
CALLED: Counter[str] = Counter()
"""Filters that the last `draw` called, and how often."""
FILTERS = ("apply_penalties", "apply_temperature", "apply_top_k", "apply_top_p", "apply_min_p")


def logs(*rows: Sequence[float]) -> Tensor:
    """Logits [n, vocab] whose softmax is these probabilities."""
    return torch.tensor(rows, dtype=torch.float64).log().float()


def readable(n: int, vocab: int, seed: int) -> Tensor:
    """Random logits [n, vocab] that are multiples of 1/4, so that many are equal."""
    return (torch.randn(n, vocab, generator=torch.Generator().manual_seed(seed)) * 8).round() / 4


def distinct(n: int, vocab: int, seed: int) -> Tensor:
    """Random logits [n, vocab], all of a row at least 1/4 apart."""
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randperm(vocab, generator=generator) for _ in range(n)]) / 4 - 2


def filtered(part: ModuleType, name: str, logits: Tensor, parameter: Any) -> Any:
    """One call of a public filter, written down, on a copy of the logits as a slice, with NaN between
    its rows. The parameter must stay."""
    tensors = {"its parameter": parameter}
    if isinstance(parameter, PenaltyBatch):
        tensors = {one.name: getattr(parameter, one.name) for one in fields(parameter)}
        shown = ", ".join(f"{what}={show(tensor)}" for what, tensor in tensors.items())
        note(f"{show(parameter)} = PenaltyBatch({shown})")
    before = {what: tensor.clone() for what, tensor in tensors.items()}
    try:
        got = getattr(watch(part.filters, "filters"), name)(padded(logits), parameter)
    except NotImplementedError:
        raise  # a stub has a verdict of its own
    except Exception as error:
        if goes_well(lambda: getattr(part.filters, name)(logits.clone(), parameter)):
            given = padded(logits)
            why = f"The logits have strides {list(given.stride())} at shape {list(given.shape)}: {GAPS}"
            with claiming(f"{name} takes logits with gaps between their rows."):
                raise Mismatch(f"{type(error).__name__}: {error}", why=why) from error
        raise
    for what, tensor in tensors.items():
        if not torch.equal(tensor, before[what]):
            problem = f"{name} changed {what} in place"
            raise Mismatch(problem, show(before[what]), show(tensor), LAST)
    return got


def goes_well(call: Callable[[], Any]) -> bool:
    try:
        call()
    except Exception:  # noqa: BLE001, a part may raise anything
        return False
    return True


def of_one_row(name: str, logits: Tensor, column: Tensor, got: Any) -> str:
    """What to say if a filter treated every row with the parameter of one of them; "" if it did not."""
    apply = getattr(filters, name)

    def left(parameter: Tensor) -> list[list[bool]]:
        kept: list[list[bool]] = (apply(logits.clone(), parameter) > -INF).tolist()
        return kept

    wrong = (got > -INF).tolist()
    if wrong == left(column):
        return ""
    rows = [row for row in range(len(column)) if wrong == left(column[row].expand(len(column)))]
    if not rows:
        return ""
    which = " or ".join(filter(None, (", ".join(map(str, rows[:-1])), str(rows[-1]))))
    return f"Every row came out as with the parameter of row {which}. {ROWS_APART}"


def expect_kept(
    got: Any, logits: Tensor, tokens: list[list[int]], what: str, *, why: str = ""
) -> None:
    """Of each row exactly these tokens are left, with their logits; the others are -inf."""
    expect(isinstance(got, Tensor), f"{what} gives {type(got).__name__} instead of logits")
    expect_equal(list(got.shape), list(logits.shape), f"the shape of what {what} gives")
    right = torch.full_like(logits, -INF)
    for row, kept in enumerate(tokens):
        right[row, kept] = logits[row, kept]
    kept = [(row > -INF).nonzero().flatten().tolist() for row in got]
    wanted = [(row > -INF).nonzero().flatten().tolist() for row in right]
    expect_equal(kept, wanted, f"the tokens that {what} keeps, row by row", why=why)
    expect_close(got, right, f"the logits that {what} gives", rtol=0, atol=0, why=PASS_THROUGH)


class _Makers(TorchFunctionMode):
    """Sees whether a tensor is made and no device named."""

    nowhere = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.nowhere |= func in MAKERS and kwargs.get("device") is None
        return func(*args, **kwargs)


def expect_on_its_device(call: Callable[[str], Any], what: str) -> None:
    """call: works on tensors of the device that it is given; so must its result.

    The device "meta" has shapes and no values: code that asks for one there cannot go on, and is not
    judged. Its first use takes a second, so it is asked only where a tensor was made anywhere.
    """
    with _Makers() as makers:
        call("cpu")
    if not makers.nowhere:
        return
    why = (
        "A tensor made without device= is on the CPU, whatever it then meets: on a GPU this call fails. "
        "Pass the device of the tensors that are given. (The device meta stands for a GPU here.)"
    )
    note(f'# {what}, all that it is given on the device "meta"')
    try:
        got = call("meta")
    except RuntimeError as error:
        apart = any(words in str(error) for words in ELSEWHERE)
        problem = f"{what} mixes tensors of two devices: {type(error).__name__}: {error}"
        expect(not apart, problem, why=why)
        return
    expect_equal(str(got.device), "meta", f"the device of what {what} gives", why=why)


def penalties_of(
    counts: Sequence[Sequence[int]], prompt: Sequence[Sequence[int]], **given: Sequence[float]
) -> PenaltyBatch:
    """counts, prompt: how often each row's output and prompt hold each token."""
    off = {"presence": 0.0, "frequency": 0.0, "repetition": 1.0}
    rows = {
        name: torch.tensor(given.get(name, [value] * len(counts))) for name, value in off.items()
    }
    return PenaltyBatch(
        **{name: column.float() for name, column in rows.items()},
        output_counts=torch.tensor(counts).float(),
        prompt_mask=torch.tensor(prompt) > 0,
    )


def batch_of(
    params: Sequence[SamplingParams],
    seeds: Sequence[int],
    steps: Sequence[int],
    penalties: PenaltyBatch | None = None,
) -> SamplingBatch:
    """The parameters of these rows, as the engine hands them over."""

    def column(name: str) -> Tensor:
        return torch.tensor([float(getattr(one, name)) for one in params])

    return SamplingBatch(
        temperature=column("temperature"),
        top_k=torch.tensor([max(0, one.top_k) for one in params]),
        top_p=column("top_p"),
        min_p=column("min_p"),
        seeds=torch.tensor(seeds),
        steps=torch.tensor(steps),
        all_greedy=all(one.is_greedy for one in params),
        any_top_k=any(one.top_k > 0 for one in params),
        any_top_p=any(one.top_p < 1 for one in params),
        any_min_p=any(one.min_p > 0 for one in params),
        penalties=penalties,
    )


def given_in(params: SamplingParams) -> str:
    named = ("temperature", "top_k", "top_p", "min_p")
    changed = [n for n in named if getattr(params, n) != getattr(PLAIN, n)]
    return ", ".join(f"{name} {getattr(params, name)}" for name in changed) or "nothing set"


@contextmanager
def reference_filters(part: ModuleType) -> Iterator[Counter[str]]:
    """The learner's Sampler on the reference's filters and noise, so that a mistake in one of those is
    found in its own task alone. Yields how often each was called; a Sampler need not call any."""
    calls: Counter[str] = Counter()
    theirs = {name: getattr(filters, name) for name in FILTERS}
    theirs["gumbel_noise"] = noise.gumbel_noise

    def counted(name: str) -> Any:
        def stand_in(*args: Any, **kwargs: Any) -> Any:
            calls[name] += 1
            return theirs[name](*args, **kwargs)

        return stand_in

    # As if part.sampler had been written on the reference: wherever its module looks a name up.
    written = inspect.unwrap(part.Sampler.sample)  # behind a decorator, such as torch.no_grad
    own = getattr(written, "__globals__", vars(part.sampler))
    places = [own, vars(part.filters), vars(part.noise)]
    with patch.dict(places[0]), patch.dict(places[1]), patch.dict(places[2]):
        for place in places:
            place.update({name: counted(name) for name in theirs if name in place})
        yield calls


def draw(
    part: ModuleType,
    logits: Tensor,
    params: Sequence[SamplingParams],
    seeds: Sequence[int],
    steps: Sequence[int],
    penalties: PenaltyBatch | None = None,
    sampler: Any = None,
) -> list[int]:
    """One call of the learner's Sampler, a new one if none is given; checks what it returns and gives
    it as a list."""
    batch = batch_of(params, seeds, steps, penalties)
    _note_rows(logits, params, seeds, steps, penalties)
    with reference_filters(part) as calls:
        tokens = (sampler or part.Sampler()).sample(padded(logits), batch)
    CALLED.clear()
    CALLED.update(calls)
    expect(isinstance(tokens, Tensor), f"sample gives {type(tokens).__name__} instead of a tensor")
    expect_equal(tokens.dtype, torch.int64, "the dtype of the tokens")
    expect_equal(list(tokens.shape), [len(logits)], "the shape of the tokens, one for each row")
    return [int(token) for token in tokens]


def _note_rows(
    logits: Tensor,
    params: Sequence[SamplingParams],
    seeds: Sequence[int],
    steps: Sequence[int],
    penalties: PenaltyBatch | None,
) -> None:
    """Write down what is sampled, row by row; of a large batch in one line."""
    note(f"sampler.sample({show(logits)}, batch){' with penalties' if penalties else ''}")
    if len(logits) <= MOST_ROWS_SHOWN:
        for row, (one, seed, step) in enumerate(zip(params, seeds, steps, strict=True)):
            note(f"    # row {row}: {given_in(one)}, seed {seed}, step {step}")
        return
    given = given_in(params[0]) if len(set(map(given_in, params))) == 1 else "several parameters"
    note(f"    # {len(logits)} rows: {given}, {_spread('seed', seeds)}, {_spread('step', steps)}")


def _spread(name: str, values: Sequence[int]) -> str:
    if len(set(values)) == 1:
        return f"{name} {values[0]}"
    return f"{name}s {values[0]}, {values[1]}, ... {values[-1]}"


def of_the_seed(values: Callable[[int], Any]) -> str:
    """What of a seed has no say; "" if nothing is found. values: what comes of a seed, as `==` compares
    it."""

    def signed(seed: int) -> int:
        return (seed + (1 << 63)) % (1 << 64) - (1 << 63)

    script = current_script()
    start_script()
    try:
        base = values(7)
        idle = [bit for bit in range(64) if values(signed(7 ^ (1 << bit))) == base]
        below = [values(seed) for seed in (0, -1, -7, -900)]
        is_absolute = [values(-7), values(-900)] == [base, values(900)]
    except Exception:  # noqa: BLE001, a part may raise anything
        return ""
    finally:
        resume_script(script)
    if len(idle) == 1:
        return f"Bit {idle[0]} of the seed{', the sign,' * (idle == [63])} changes nothing."
    if idle and idle == list(range(idle[0], idle[-1] + 1)):
        return f"Bits {idle[0]} to {idle[-1]} of the seed change nothing."
    if is_absolute:
        return "Seed -900 is taken for seed 900, too: the sign has no say."
    if all(one == below[0] for one in below):
        return "Seeds -1, -7 and -900 are all taken for seed 0."
    return ""


def chi_square_chance(counts: Tensor, probabilities: Tensor) -> float:
    """How likely counts this far from the probabilities are, all of which are above 0."""
    from scipy.special import chdtrc

    wanted = probabilities.double() * counts.sum()
    distance = ((counts.double() - wanted).square() / wanted).sum()
    return float(chdtrc(max(1, len(counts) - 1), float(distance)))


def gumbel_chance(values: Tensor) -> float:
    """Kolmogorov and Smirnov: how likely values this far from a standard Gumbel distribution are."""
    from scipy.special import kolmogorov

    n = values.numel()
    steps = torch.arange(n + 1, dtype=torch.float64) / n
    reached = torch.exp(-torch.exp(-values.double().flatten().sort().values))
    distance = torch.maximum((steps[1:] - reached).amax(), (reached - steps[:-1]).amax())
    return float(kolmogorov(math.sqrt(n) * float(distance)))


def correlation(one: Tensor, other: Tensor) -> float:
    """Of two vectors, between -1 and 1; 0 if they know nothing of each other."""
    return float(torch.corrcoef(torch.stack((one.double(), other.double())))[0, 1])
