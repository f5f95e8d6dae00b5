"""Lab 20 in the engine: two ranks as threads of this process carry out the steps of a whole engine.

Processes of their own, which the engine starts, would import the part that lies in `labs`, and not the
one that is graded.
"""

import copy
from types import ModuleType
from typing import Any

from grader.kit.expect import expect_equal
from grader.kit.in_engine.runs import GREEDY, PROMPTS, WHY
from grader.kit.script import note, start_script
from yaie.backends import choose_backend
from yaie.core.config import EngineConfig
from yaie.core.contracts import StepHandle
from yaie.core.contracts.ranks import Link
from yaie.core.step import StepInput, StepResult
from yaie.core.threaded_ranks import Wire
from yaie.demos.runs import ask, run
from yaie.engine.llm_engine import LLMEngine
from yaie.models.loader import ModelLoader
from yaie.models.shard import Shard
from yaie.worker.build import Sizes, make_worker
from yaie.worker.parallel.rank_process import Part

RANKS = 2
SETTINGS: dict[str, Any] = {"device": "cpu", "backend": "torch", "mine": "none", "threads": 1}
BLOCKS = 64
Drawn = list[list[int]]
"""The tokens of each row of a step that samples."""


def expect_ranks_draw_the_same(part: ModuleType) -> None:
    """Each rank draws the tokens that one worker with the whole model draws."""
    config = EngineConfig(num_blocks=BLOCKS, overlap="off", **SETTINGS)
    steps, right = _recorded(config)
    start_script()
    note(f"# {len(steps)} steps of the engine on the tutor, split over {RANKS} ranks of your part")
    found = Wire(RANKS).run(lambda link: _carried_out(config, part, link, steps))
    for rank, drawn in enumerate(found):
        for number, (got, wanted) in enumerate(zip(drawn, right, strict=True)):
            expect_equal(
                got, wanted, f"the tokens that rank {rank} draws in step {number}", why=WHY
            )


class _Noted:
    """A StepHandle that keeps what its step has drawn."""

    def __init__(self, handle: StepHandle, drawn: list[Drawn]) -> None:
        self._handle = handle
        self._drawn = drawn
        self.mask = handle.mask

    def result(self) -> StepResult:
        """As the handle's."""
        result = self._handle.result()
        self._drawn.append(result.token_ids)
        return result


def _recorded(config: EngineConfig) -> tuple[list[StepInput], list[Drawn]]:
    """The steps that one worker gets for two requests, and what it draws in each."""
    steps: list[StepInput] = []
    drawn: list[Drawn] = []
    engine = LLMEngine(config)
    try:
        worker = engine.machine_parts.worker
        execute = worker.execute

        def noted(step: StepInput) -> _Noted:
            steps.append(copy.deepcopy(step))
            return _Noted(execute(step), drawn)

        setattr(worker, "execute", noted)  # noqa: B010, a method of this one object
        prompts = [ask(engine, prompt) for prompt in PROMPTS[1:3]]
        run(engine, prompts, GREEDY)
    finally:
        engine.close()
    return steps, drawn


def _carried_out(
    config: EngineConfig, part: ModuleType, link: Link, steps: list[StepInput]
) -> list[Drawn]:
    """What one rank draws in each step."""
    loader = ModelLoader(config, progress=False)
    backend = choose_backend(config, loader.device, loader.head_dims, packed=False)
    shard = Shard(part, part.Ring(link))
    adapter, _ = loader.load_adapter(backend.make_ops(), backend.dtypes, None, shard)
    mine = Part(adapter, loader.dtype, loader.device, adapter.max_length)
    worker = make_worker(config, backend, mine, Sizes(BLOCKS, 0, 0, 2 * config.max_num_seqs))
    drawn: list[Drawn] = []
    for step in steps:
        result = worker.execute(copy.deepcopy(step)).result()
        assert result.fault is None, result.fault
        drawn.append(result.token_ids)
    return drawn
