"""Task 7.4: whole lives. A model's own words, and requests at random."""

from types import ModuleType

from grader.kit import expect_equal, note, run_machine, task
from grader.kit.session import SESSION
from grader.suites.engine.lending import core_class
from grader.suites.engine.step_machine import StepMachine
from yaie.core.params import SamplingParams
from yaie.core.request import Request


@task("7.4")
def test_a_model_says_what_it_says_without_an_engine(part: ModuleType) -> None:
    """A tiny Llama says in batches, chunks and after preemptions what it says alone, token by token."""
    from grader.suites.engine.tiny_llama import VOCAB, core_with, greedy, tiny_llama

    model = tiny_llama(SESSION.seed)
    core = core_with(core_class(part.EngineCore, "7.4"), model, num_blocks=6)
    shared = [(7 * i + 3) % VOCAB for i in range(9)]
    prompts = [shared, [*shared[:8], 5, 6], [1], shared[2:5]]
    requests = []
    for index, prompt in enumerate(prompts):
        params = SamplingParams(temperature=0.0)
        request = Request(f"r{index}", list(prompt), params, arrival=index, max_tokens=8)
        note(f"r{index}: prompt {prompt}, max_tokens 8")
        core.add_request(request)
        requests.append(request)
    for _ in range(200):
        if not core.has_work:
            break
        core.step()
    for request, prompt in zip(requests, prompts, strict=True):
        expect_equal(
            request.output_token_ids[:7],
            greedy(model, prompt, 7),
            f"the first 7 tokens of {request.request_id}",
            why="Neither batch nor cache may change what a model says under greedy sampling.",
        )


@task("7.4")
def test_any_requests(part: ModuleType) -> None:
    """Whatever requests come and whenever, each gets its own tokens and one end."""
    run_machine(StepMachine, part, runs=40, steps=14)
