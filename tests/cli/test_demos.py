"""What the demos of the labs count, held against counts of the tests' own; and wrong parts show."""

import ast
import io
import os
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from solutions.sampler.naive import probabilities
from solutions.speculative.naive import scanned
from tests.learner import hand_in
from yaie.cli import demo
from yaie.core.params import SamplingParams
from yaie.curriculum.manifest import load_curriculum
from yaie.demos import engine as engine_demo
from yaie.demos import paged_cache, radix_tree, scheduler, speculative
from yaie.demos.runs import ask
from yaie.demos.shown import Shown
from yaie.demos.table import show
from yaie.engine.drafting.ngrams import LONGEST, SHORTEST
from yaie.engine.llm_engine import LLMEngine
from yaie.parts import load_part
from yaie.system.terminal import Terminal

COMPILED = [lab.key for lab in load_curriculum().labs if "cuda-on-cpu" in lab.verify]
SLOW = ["quantization", *COMPILED]
"""They compile, or round a model."""
INTERPRETED = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="counts in Triton's interpreter"
)


def marks(lab: str) -> list[pytest.MarkDecorator]:
    """What a lab's demo needs."""
    return [pytest.mark.nightly] * (lab in SLOW) + [INTERPRETED] * lab.startswith("triton")


LABS = [pytest.param(lab, marks=marks(lab)) for lab in load_curriculum().keys]


@cache
def shown(lab: str) -> Shown:
    """What the reference's demo shows."""
    return show(load_part(lab, "none"))


@cache
def tutor() -> LLMEngine:
    return LLMEngine(model="tutor", device="cpu", mine="none", prefix_caching=False)


def answer(prompt: Sequence[int], params: SamplingParams) -> list[int]:
    """The tokens of a greedy answer."""
    engine = tutor()
    (request,) = engine.add_request(list(prompt), params)
    while engine.has_work:
        engine.step()
    return request.token_ids[request.num_prompt_tokens :]


@pytest.mark.parametrize("lab", LABS)
def test_every_lab_has_a_demo_that_fits_the_screen(
    lab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = shown(lab)
    assert all(len(row.cells) == len(one.heads) for row in one.rows)
    assert len({row.name for row in one.rows}) == len(one.rows)
    assert any(sum(isinstance(cell, int | float) for cell in row.cells) > 1 for row in one.rows)
    assert any(character.isdigit() for character in one.so)
    file = io.StringIO()
    terminal = Terminal(file=file, width=80)
    for module in (demo, demo.show_table.__globals__):
        target = module if isinstance(module, dict) else vars(module)
        monkeypatch.setitem(target, "out", terminal)
    demo.print_shown(one)
    assert max(len(line.rstrip()) for line in file.getvalue().splitlines()) <= 80


# --- the same counts, in another way ---


def test_speculative_counts_drafts_as_a_scan_of_the_text_finds_them() -> None:
    engine = tutor()
    prompt = ask(engine, speculative.QUESTION)
    output = answer(prompt, speculative.GREEDY)
    known, steps, drafted, accepted = 1, 1, 0, 0
    while known < len(output):
        text = [*prompt, *output[:known]]
        place = scanned(text, LONGEST, SHORTEST)
        room = min(speculative.DRAFTS, speculative.GREEDY.max_tokens - known - 1)
        drafts = [] if place is None else text[place : place + room]
        ends = (i for i, token in enumerate(drafts) if token in engine.model.eos_token_ids)
        drafts = drafts[: next(ends, len(drafts))]
        right = 0
        while right < len(drafts) and drafts[right : right + 1] == output[known + right :][:1]:
            right += 1
        steps, drafted, accepted = steps + 1, drafted + len(drafts), accepted + right
        known += right + 1
    found = shown("speculative")
    assert found.cells("steps") == (len(output), steps)
    assert found.cells("drafts") == (0, drafted)
    assert found.cells("accepted") == (0, accepted)
    assert accepted > 0


def test_radix_tree_counts_whole_blocks_of_what_was_said_before() -> None:
    engine = tutor()
    turns: list[str] = []
    seen: list[int] = []
    for number, question in enumerate(radix_tree.QUESTIONS, 1):
        turns.append(question)
        prompt = ask(engine, *turns)
        output = answer(prompt, radix_tree.GREEDY)
        common = next(
            (i for i, (a, b) in enumerate(zip(seen, prompt, strict=False)) if a != b), len(seen)
        )
        found = min(common, len(prompt) - 1) // 16 * 16
        whole = len(prompt) + len(output) - 1
        name = f"question {number}: tokens computed"
        assert shown("radix_tree").cells(name) == (whole, whole - found)
        seen = [*prompt, *output][:whole]
        turns.append(engine.tokenizer.decode(output))


def test_paged_cache_counts_the_blocks_of_its_prompts() -> None:
    engine = tutor()
    prompts = [ask(engine, paged_cache.SYSTEM + one) for one in paged_cache.QUESTIONS]
    lens = [len(prompt) + paged_cache.PARAMS.max_tokens - 1 for prompt in prompts]
    begins = [tuple(p[:end]) for p in prompts for end in range(16, len(p) + 1, 16)]
    blocks = sum(-(-length // 16) for length in lens)
    found = shown("paged_cache")
    shared = len(begins) - len(set(begins))
    assert found.cells("blocks in use")[1:] == (blocks, blocks - shared)
    assert found.cells("slots reserved")[0] == 4 * engine.max_model_len
    assert f"{sum(lens)} tokens" in found.what


def test_scheduler_computes_each_token_once_and_static_batches_more() -> None:
    found = shown("scheduler")
    engine = tutor()
    prompts = [
        len(ask(engine, scheduler.QUESTION * (30 if i == scheduler.LONG else 1)))
        for i in range(len(scheduler.LENGTHS))
    ]
    tokens = sum(prompts) + sum(length - 1 for length in scheduler.LENGTHS)
    static, whole, chunks = found.cells("tokens computed")
    assert (whole, chunks) == (tokens, tokens)
    assert isinstance(static, int)
    assert static > tokens
    largest = found.cells("tokens of the largest step")
    assert largest[2] == scheduler.BUDGET
    assert isinstance(largest[1], int)
    assert largest[1] >= max(prompts)
    # Two batches of four: each as long as its longest answer, and a step more for its long prompt.
    first, second = scheduler.LENGTHS[:4], scheduler.LENGTHS[4:]
    steps = found.cells("steps")[0]
    assert isinstance(steps, int)
    assert steps >= max(first) + max(second)


def test_engine_ends_where_the_stop_string_begins() -> None:
    engine = tutor()
    ids = answer(
        ask(engine, engine_demo.QUESTION),
        SamplingParams(temperature=0, max_tokens=engine_demo.TOKENS),
    )
    text = engine.tokenizer.decode(ids)
    stop = text[engine_demo.STOP_AT : engine_demo.STOP_AT + engine_demo.STOP_LENGTH]
    needed = next(n for n in range(len(ids)) if stop in engine.tokenizer.decode(ids[:n]))
    found = shown("engine")
    assert found.cells("tokens generated") == (len(ids), needed)
    assert found.cells("characters shown before it") == (text.index(stop), text.index(stop))
    assert found.cells("characters of the stop string shown")[1] == 0


def test_cuda_graphs_draws_the_clock_that_its_numbers_make() -> None:
    found = shown("cuda_graphs")
    sent, more = found.cells("steps sent")
    assert isinstance(sent, int)
    assert isinstance(more, int)
    assert found.cells("steps in flight, at most") == (1, 2)
    # Off, each step takes 3 units between two calls of 1; on, the device never waits after the first.
    assert found.cells("units to the end") == (5 * sent, 3 * more + 2)
    assert found.cells("units in which the device idles") == (2 * (sent - 1), 0)


def test_tensor_parallel_sends_what_the_formula_of_a_ring_says() -> None:
    found = shown("tensor_parallel")
    hidden, layers, ranks, sequences = 256, 8, 4, 2
    bytes_of_sum = 4 * hidden * sequences
    sums = 1 + 2 * layers
    for rank in range(ranks):
        assert found.cells(f"rank {rank}: bytes of {sums} sums") == (
            sums * (ranks - 1) * bytes_of_sum,
            sums * 2 * (ranks - 1) * bytes_of_sum // ranks,
        )
    assert found.cells("tensors that rank 0 sends for a sum") == (ranks - 1, 2 * (ranks - 1))


def test_structured_output_saves_the_steps_of_forced_tokens() -> None:
    found = shown("structured_output")
    tokens, steps = (found.cells(name)[1] for name in ("tokens of the answer", "steps"))
    forced = found.cells("of them, right")[1]
    assert isinstance(tokens, int)
    assert isinstance(forced, int)
    assert steps == tokens - forced < tokens
    assert found.cells("fits the schema") == ("no", "yes")
    line = found.picture[1].split("  ", 1)[1]
    value = ast.literal_eval(
        ast.literal_eval(line).replace("true", "True").replace("false", "False")
    )
    assert [type(one) for one in value.values()] == [bool, int]


def test_state_cache_computes_less_and_answers_the_same() -> None:
    found = shown("state_cache")
    alone, kept = found.cells("tokens computed")
    assert isinstance(alone, int)
    assert isinstance(kept, int)
    spared = [found.cells(f"question {at}: tokens not computed") for at in (1, 2, 3, 4)]
    assert [pair[0] for pair in spared] == [0] * 4
    # A state is kept where the second question parts from the first, and the others go on from there.
    assert [pair[1] == 0 for pair in spared] == [True, True, False, False]
    assert alone - kept == sum(int(pair[1]) for pair in spared)
    assert all(int(pair[1]) % 16 == 0 for pair in spared)
    assert found.cells("answers that are the same")[1] == "4 of 4"
    steps = found.cells("steps of tutor-hybrid")
    accepted, drafts = map(int, str(found.cells("drafts that were accepted")[1]).split(" of "))
    assert 0 < accepted < drafts
    assert steps[0] == int(steps[1]) + accepted
    assert found.cells("the answer")[1] == "the same"
    # Tails of a convolution, 160 channels by 3, and matrices, 4 of 16 by 24, of three layers.
    state = 4 * 3 * (160 * 3 + 4 * 16 * 24)
    assert found.cells("bytes of a state, whatever the length")[1] == state
    # 63 blocks of one layer that attends: 2 heads of 32 numbers, keys and values.
    assert found.cells("bytes of keys and values, 1,000 tokens")[1] == 4 * 63 * 16 * 2 * 2 * 32


def test_sampler_shows_draws_beside_their_probabilities() -> None:
    found = shown("sampler")
    assert found.cells("different tokens")[0] == 1
    assert found.cells("draws outside of the top-p set")[2] == 0
    rows = [line.rsplit(maxsplit=3) for line in found.picture[1:]]
    probs, shares = ([float(row[column]) for row in rows] for column in (-3, -2))
    gap = max(abs(p - s) for p, s in zip(probs, shares, strict=True))
    assert gap < 0.12  # 3.4 times the deviation of 200 draws, at most
    assert sum(shares) <= 1 + 1e-9


def test_the_nucleus_is_that_of_the_definition() -> None:
    import torch

    from yaie.demos.sampler import nucleus

    logits = torch.tensor([3.0, 1.0, 2.0, -1.0, 2.5])
    kept = nucleus(logits.double().softmax(0), 0.8)
    params = SamplingParams(temperature=1.0, top_p=0.8)
    assert kept.tolist() == pytest.approx(probabilities(logits.tolist(), params))


@INTERPRETED
def test_triton_ops_counts_each_byte_that_is_moved() -> None:
    found = shown("triton_ops")
    x, weight = 16 * 256 * 4, 256 * 4
    plain, kernel = found.cells("silu_mul: bytes")
    # PyTorch reads a half and writes one for silu, then reads two halves and writes one.
    assert (plain, kernel) == (5 * x, 3 * x)
    norm = found.cells("rms_norm: bytes")[1]
    assert isinstance(norm, int)
    assert norm - 2 * x in range(weight, 17 * weight, weight)  # once for each program


# --- a part that is wrong, or wasteful ---

Extra = dict[str, tuple[str, Callable[[Shown, Shown], bool]]]

WORSE: Extra = {
    "speculative": (
        "NgramIndex.place = lambda self, text: None",
        lambda own, ref: own.cells("steps")[1] == ref.cells("steps")[0],
    ),
    "radix_tree": (
        (
            "class Forgetful(RadixTree):\n"
            "    most = 1\n\n"
            "    def match_prefix(self, tokens, most):\n"
            "        return super().match_prefix(tokens, min(most, self.most))\n\n"
            "    def insert(self, *given):\n"
            "        self.most = 10**9\n"
            "        filed = super().insert(*given)\n"
            "        self.most = 1\n"
            "        return filed\n\n\n"
            "RadixTree = Forgetful"
        ),
        lambda own, ref: own.cells("tokens found in the tree") == (0, 32),
    ),
    "cuda_graphs": (
        "OverlappedLoop.step = lambda self: self._core.step()",
        lambda own, ref: own.cells("steps in flight, at most") == (1, 1),
    ),
    "sampler": (
        "Sampler.sample = lambda self, logits, batch: logits.argmax(dim=1)",
        lambda own, ref: own.cells("different tokens") == (1, 1, 1),
    ),
    "tensor_parallel": (
        (
            "from .naive import EachToAll\n"
            "Ring.all_reduce = lambda self, x: EachToAll(self._link).all_reduce(x)"
        ),
        lambda own, ref: own.cells("tensors that rank 0 sends for a sum") == (3, 3),
    ),
    "structured_output": (
        "Matcher.forced = lambda self, most: []",
        lambda own, ref: own.cells("forced tokens that were sent") == (0, 0),
    ),
    "state_cache": (
        "Checkpoints.depth = lambda self, blocks: 0",
        lambda own, ref: own.cells("tokens computed")[0] == own.cells("tokens computed")[1],
    ),
}


@pytest.mark.parametrize("lab", WORSE)
def test_a_wasteful_part_shows(lab: str, labs: Path) -> None:
    extra, is_worse = WORSE[lab]
    hand_in(labs, lab, f"\n\n{extra}\n")
    own = show(load_part(lab, lab))
    assert is_worse(own, shown(lab)), own
    assert own.so != shown(lab).so
