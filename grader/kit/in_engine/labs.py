"""What each lab is tried with in the engine. What lab 17 and lab 20 do on a GPU alone is not tried."""

import json
import tempfile
from pathlib import Path
from types import ModuleType

from grader.kit.in_engine.runs import GREEDY, LONG, PROMPTS, Trial, expect_the_same_tokens
from grader.kit.in_engine.shallow import rounded_tutor, shallow_tutor
from yaie.core.constraint import Constraint
from yaie.core.params import SamplingParams
from yaie.demos.hybrid import tiny_hybrid
from yaie.models.hub import HYBRID

TORCH = {"backend": "torch", "num_blocks": 64, "overlap": "off"}
TIGHT = TORCH | {"num_blocks": 8, "token_budget": 24, "max_num_seqs": 3}
"""A pool that is too small for all at once, and a budget that cuts prompts."""
VOCAB = 512
TOKENS = (list(range(40, 63)), [7, 300, 7])
"""Prompts of a vocabulary that is cut: of more than a block, and of less."""
HEAT = (0, 0.7)
DRAWN = tuple(
    SamplingParams(
        temperature=temperature, top_k=50, top_p=0.95, seed=5, max_tokens=2, ignore_eos=True
    )
    for temperature in HEAT
)
UNFILTERED = tuple(
    SamplingParams(temperature=temperature, seed=5, max_tokens=2, ignore_eos=True)
    for temperature in HEAT
)
"""For kernels of other labs than that of sampling: in the interpreter the filters of the reference take
longer than all layers."""
CERTAIN = tuple(
    SamplingParams(**asked, **LONG)
    for asked in (
        {"temperature": 0},
        {"temperature": 0, "repetition_penalty": 1.3},
        {"temperature": 0.8, "top_k": 1, "seed": 7},
        {"temperature": 0, "frequency_penalty": 0.5, "presence_penalty": 0.2},
    )
)
"""With one token each that can be drawn: lab 1 may give its tokens noise in any order."""
SCHEMA = {
    "type": "object",
    "properties": {"is_a_list": {"type": "boolean"}, "entries": {"type": "integer"}},
    "required": ["is_a_list", "entries"],
    "additionalProperties": False,
}
CONSTRAINED = SamplingParams(
    temperature=0, max_tokens=12, constraint=Constraint("json_schema", json.dumps(SCHEMA))
)
REPEATS = (
    "I read that the KV cache stores the attention keys and values of all tokens processed so far, so "
    "that a decode step computes them only for the new token. What is a KV cache?"
)
"""The tutor's answer is in it."""
MORE = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)

SHARED = [(7 * i * i + 3 * i) % (VOCAB - 3) for i in range(150)]
BRANCHES = (*([*SHARED, *[last] * 9] for last in (1, 2, 3)), SHARED[:40])
"""Prompts that go apart behind nine blocks, and a short one."""

PLAIN: dict[str, Trial] = {
    "sampler": Trial(TORCH, params=CERTAIN),
    "transformer_ops": Trial(TORCH),
    "paged_cache": Trial(TIGHT),
    "radix_tree": Trial(TIGHT),
    "radix_attention": Trial(TORCH),
    "engine": Trial(TIGHT),
    "cuda_graphs": Trial(TIGHT | {"overlap": "on"}),
    "speculative": Trial(
        TORCH | {"speculate": "ngram", "num_drafts": 3}, (PROMPTS[2], REPEATS), (MORE,)
    ),
    "structured_output": Trial(TORCH, PROMPTS[2:], (CONSTRAINED, GREEDY)),
}


def expect_the_engine_runs_on(part: ModuleType, lab: str) -> None:
    """The engine's tokens on this part are those on the reference."""
    if lab in PLAIN:
        expect_the_same_tokens(lab, PLAIN[lab])
    elif lab == "scheduler":
        with tempfile.TemporaryDirectory(prefix="yaie-shallow-") as folder:
            # Wrong K and V show behind the second layer as well as behind the eighth.
            model = shallow_tutor(Path(folder, "tutor"), layers=2)
            expect_the_same_tokens(lab, Trial(TIGHT | {"model": str(model)}))
    elif lab == "api_server":
        from grader.kit.in_engine.replies import expect_the_same_replies

        expect_the_same_replies(part, TORCH)
    elif lab == "tensor_parallel":
        from grader.kit.in_engine.ranks import expect_ranks_draw_the_same

        expect_ranks_draw_the_same(part)
    elif lab == "state_cache":
        with tempfile.TemporaryDirectory(prefix="yaie-hybrid-") as folder:
            deep = tiny_hybrid(Path(folder, "deep"), vocab=VOCAB)
            tight = TIGHT | {"num_blocks": 64, "token_budget": 48, "model": str(deep)}
            expect_the_same_tokens(lab, Trial(tight, BRANCHES, (GREEDY,)))
            drafted = PLAIN["speculative"].settings | {"model": HYBRID}
            expect_the_same_tokens(lab, Trial(drafted, (REPEATS,), (MORE,), rounds=1))
            settings = TORCH | {"model": str(tiny_hybrid(Path(folder, "flat"), "da", VOCAB))}
            kernels = settings | {"backend": "triton"}
            expect_the_same_tokens(
                lab, Trial(kernels, TOKENS, DRAWN[:1], rounds=1), beside=settings
            )
    elif lab == "quantization":
        with tempfile.TemporaryDirectory(prefix="yaie-rounded-") as folder:
            for bits in (8, 4):
                model = rounded_tutor(Path(folder, f"int{bits}"), bits)
                settings = TORCH | {
                    "model": str(model),
                    "kv_dtype": "int8" if bits == 8 else "auto",
                }
                expect_the_same_tokens(lab, Trial(settings, PROMPTS[:3], (GREEDY,), rounds=1))
    else:
        with tempfile.TemporaryDirectory(prefix="yaie-shallow-") as folder:
            model = shallow_tutor(Path(folder, "tutor"), layers=1, vocab=VOCAB)
            settings = TORCH | {"backend": lab.partition("_")[0], "model": str(model)}
            drawn = DRAWN if lab.endswith("_sampling") else UNFILTERED
            # The reference on plain PyTorch takes a tenth of what it takes in Triton's interpreter.
            expect_the_same_tokens(
                lab, Trial(settings, TOKENS, drawn, rounds=1), beside=TORCH | {"model": str(model)}
            )
