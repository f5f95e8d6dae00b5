"""`yaie bench memory`: how much of the KV memory that is taken holds a token."""

from dataclasses import replace

from yaie.bench.report import progress, save, show
from yaie.bench.workload import Job, Lengths, draw_jobs, raise_if_failed, with_room
from yaie.cli.console import show_parts
from yaie.core.config import EngineConfig
from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.engine.llm_engine import LLMEngine


def run(config: EngineConfig, num_requests: int, lengths: Lengths, json: str | None) -> None:
    """Count taken and filled slots after every step, for the engine and for three allocators that
    give each request one contiguous piece, on the same requests at the same moments.

    The allocators are those that Kwon et al. (2023, section 6) compare with: the context's length for
    all, the next power of two of what the request will need, and exactly what it will need, which no
    real allocator can know.
    """
    engine = LLMEngine(replace(with_room(config), prefix_caching=False))
    show_parts(engine.parts)
    jobs = draw_jobs(num_requests, lengths, engine.tokenizer.vocab_size)
    job_of = _add(engine, jobs)
    filled = 0
    taken = dict.fromkeys(("paged", "exact", "power of two", "whole context"), 0)
    with progress() as bar:
        task = bar.add_task("running", total=num_requests)
        while engine.has_work:
            outputs = engine.step()
            for output in outputs:
                raise_if_failed(output)
            bar.advance(task, sum(output.finish_reason is not None for output in outputs))
            running = [request for request in job_of if _holds_memory(request)]
            filled += sum(request.num_computed_tokens for request in running)
            taken["paged"] += int(engine.stats()["used_blocks"]) * engine.config.block_size
            for request in running:
                need = len(job_of[request].prompt) + job_of[request].num_output
                taken["exact"] += need
                taken["power of two"] += 1 << (need - 1).bit_length()
                taken["whole context"] += engine.max_model_len
    shares = {name: filled / slots for name, slots in taken.items()}
    names = {
        "paged": f"YAIE, blocks of {engine.config.block_size}",
        "exact": "contiguous, exact length known in advance",
        "power of two": "contiguous, next power of two",
        "whole context": f"contiguous, the whole context of {engine.max_model_len}",
    }
    rows = [(names[name], f"{share:.1%}") for name, share in shares.items()]
    note = f"{num_requests} requests; {lengths}; averaged over all steps"
    show(f"KV memory of {engine.model_name}", ["", "slots that hold a token"], rows, [note])
    save(json, {"workload": note, "shares": shares})


def _holds_memory(request: Request) -> bool:
    return request.num_computed_tokens > 0 and not request.is_finished


def _add(engine: LLMEngine, jobs: list[Job]) -> dict[Request, Job]:
    """Queue every job; returns which request is whose."""
    job_of = {}
    for job in jobs:
        params = SamplingParams(temperature=0, max_tokens=job.num_output, ignore_eos=True)
        job_of[engine.add_request(job.prompt, params)[0]] = job
    return job_of
