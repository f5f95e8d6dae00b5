"""A learner's part that raises ends the requests it was at, says where, and the engine goes on."""

import gc
import logging
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.learner import faults_of, hand_in, hand_in_faulty
from tests.models.tiny import tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.errors import EngineDeadError, PartError, YaieError
from yaie.core.request import FinishReason, Request

PARAMS = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)
PROMPTS = [[5, 6, 7], list(range(20, 60)), [9] * 17]
METHODS = {
    "sampler": "Sampler.sample",
    "transformer_ops": "TransformerOps.attention",
    "paged_cache": "KVCacheManager.allocate",
    "radix_tree": "RadixTree.match_prefix",
    "radix_attention": "RadixAttention.run",
    "scheduler": "Scheduler.schedule",
    "engine": "EngineCore.step",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.set_num_threads(1)
    return str(tiny_model("llama", tmp_path_factory.mktemp("models") / "llama"))


@pytest.fixture(scope="module")
def expected(folder: str) -> list[list[int]]:
    """What the reference generates for PROMPTS."""
    return finish(make(folder, "none"), PROMPTS)


def make(folder: str, mine: str, **settings: object) -> LLMEngine:
    return LLMEngine(model=folder, mine=mine, **{"num_blocks": 40, **settings})


def add(engine: LLMEngine, prompts: list[list[int]]) -> list[Request]:
    return [engine.add_request(prompt, PARAMS)[0] for prompt in prompts]


def drain(engine: LLMEngine) -> dict[str, FinishReason]:
    """Step to the end; how each request ended, as its outputs tell it."""
    ends = {}
    while engine.has_work:
        for output in engine.step():
            if output.finish_reason is not None:
                assert output.request_id not in ends
                ends[output.request_id] = output.finish_reason
        engine.check()
    return ends


def all_failed(requests: list[Request]) -> dict[str, FinishReason]:
    return {request.request_id: FinishReason.ERROR for request in requests}


def finish(engine: LLMEngine, prompts: list[list[int]]) -> list[list[int]]:
    requests = add(engine, prompts)
    assert set(drain(engine).values()) == {FinishReason.LENGTH}
    return [request.output_token_ids for request in requests]


@pytest.mark.parametrize("lab", METHODS)
def test_a_part_that_raises_ends_what_ran_and_the_engine_goes_on(
    labs: Path, folder: str, expected: list[list[int]], lab: str
) -> None:
    hand_in_faulty(labs, lab, METHODS[lab])
    engine = make(folder, lab)
    running = add(engine, PROMPTS)
    engine.step()
    if lab == "radix_tree":  # is asked only when a request is admitted
        running += add(engine, [[1, 2, 3]])
    faults_of(lab).append(IndexError("boom"))
    ends = drain(engine)
    failed = [request for request in running if ends[request.request_id] is FinishReason.ERROR]
    assert running[:3] == failed[:3]
    for request in failed:
        assert (request.error or "").startswith(
            f"your part {lab} failed: IndexError: boom (labs/{lab}/"
        )
    assert engine.stats()["failed_requests"] == len(failed)
    assert finish(engine, PROMPTS) == expected


@pytest.mark.parametrize(
    ("lab", "method"), [("engine", "Detokenizer.push"), ("engine", "StopChecker.push")]
)
def test_a_part_that_raises_for_one_request_ends_that_one_and_says_where(
    labs: Path, folder: str, expected: list[list[int]], lab: str, method: str
) -> None:
    hand_in_faulty(labs, lab, method)
    engine = make(folder, lab)
    first, *others = add(engine, PROMPTS)
    engine.step()
    machine = engine._machine.scheduler
    faults_of(lab).append(IndexError("boom"))
    ends = drain(engine)
    assert ends.pop(first.request_id) is FinishReason.ERROR
    assert (first.error or "").startswith(f"your part {lab} failed: IndexError: boom (labs/{lab}/")
    assert set(ends.values()) == {FinishReason.LENGTH}
    assert [request.output_token_ids for request in others] == expected[1:]
    assert engine._machine.scheduler is machine
    assert engine.stats()["used_blocks"] == 0


def test_a_first_step_that_fails_ends_all_that_waited(
    labs: Path, folder: str, expected: list[list[int]]
) -> None:
    hand_in_faulty(labs, "scheduler", "Scheduler.schedule")
    engine = make(folder, "scheduler")
    requests = add(engine, PROMPTS)
    faults_of("scheduler").append(RuntimeError("at once"))
    assert drain(engine) == all_failed(requests)
    assert finish(engine, PROMPTS) == expected


def test_requests_that_had_not_started_survive(
    labs: Path, folder: str, expected: list[list[int]]
) -> None:
    hand_in_faulty(labs, "sampler", "Sampler.sample")
    engine = make(folder, "sampler", max_num_seqs=1)
    requests = add(engine, PROMPTS)
    engine.step()
    faults_of("sampler").append(IndexError("boom"))
    ends = drain(engine)
    assert [ends[request.request_id].value for request in requests] == ["error", "length", "length"]
    assert [request.output_token_ids for request in requests[1:]] == expected[1:]


def test_forks_end_with_the_request_whose_blocks_they_share(
    labs: Path, folder: str, expected: list[list[int]]
) -> None:
    """A fork waits while its prompt's first request runs: as one answer they fail or go on."""
    hand_in_faulty(labs, "sampler", "Sampler.sample")
    engine = make(folder, "sampler", max_num_seqs=1)
    first, *forks = engine.add_request(PROMPTS[1], replace(PARAMS, n=3))
    (other,) = add(engine, PROMPTS[:1])
    engine.step()
    faults_of("sampler").append(IndexError("boom"))
    ends = drain(engine)
    assert ends.pop(other.request_id) is FinishReason.LENGTH
    assert ends == all_failed([first, *forks])
    assert other.output_token_ids == expected[0]


def test_survivors_that_fail_again_on_their_way_back_end_too(labs: Path, folder: str) -> None:
    hand_in_faulty(labs, "scheduler", "Scheduler.add")
    engine = make(folder, "scheduler", max_num_seqs=1)
    requests = add(engine, PROMPTS)
    engine.step()
    engine._machine.worker.sampler.sample = None  # type: ignore[attr-defined]
    faults_of("scheduler").extend([None, KeyError("again")])
    assert drain(engine) == all_failed(requests)
    assert "NoneType" in (requests[0].error or "")
    assert "your part scheduler failed: KeyError: 'again'" in (requests[1].error or "")


def test_even_system_exit_is_a_failure_of_the_part_and_ctrl_c_is_not(
    labs: Path, folder: str
) -> None:
    hand_in_faulty(labs, "engine", "EngineCore.step")
    engine = make(folder, "engine")
    faults_of("engine").append(SystemExit(3))
    (request,) = add(engine, PROMPTS[:1])
    drain(engine)
    assert "SystemExit: 3" in (request.error or "")
    faults_of("engine").append(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        engine.generate(PROMPTS[0], PARAMS)


MALFORMED = {
    ("sampler", "Sampler.sample = lambda self, logits, batch: None"): "AttributeError",
    ("sampler", "Sampler.sample = lambda self, logits, batch: logits[:1, 0].long()"): "ValueError",
    ("engine", "EngineCore.step = lambda self: None"): "list of RequestOutputs, got None",
    ("engine", "EngineCore.has_work = False"): "has forgotten 3 requests",
}


@pytest.mark.parametrize(("submission", "message"), MALFORMED.items())
def test_what_a_part_returns_wrongly_counts_as_its_failure(
    labs: Path, folder: str, submission: tuple[str, str], message: str
) -> None:
    lab, code = submission
    hand_in(labs, lab, f"\n{code}\n")
    engine = make(folder, lab)
    requests = add(engine, PROMPTS)
    assert drain(engine) == all_failed(requests)
    for request in requests:
        assert (request.error or "").startswith(f"the engine failed on your {lab}: ")
        assert message in (request.error or "")
        assert request.error is not None
        assert ".py, line " in request.error


def test_a_part_that_fails_on_a_new_request_refuses_it_and_keeps_who_waits(
    labs: Path, folder: str, expected: list[list[int]]
) -> None:
    hand_in_faulty(labs, "engine", "EngineCore.add_request")
    engine = make(folder, "engine")
    (waiting,) = add(engine, PROMPTS[:1])
    faults_of("engine").append(IndexError("boom"))
    with pytest.raises(PartError, match="your part engine failed: IndexError: boom"):
        add(engine, PROMPTS[1:2])
    assert drain(engine) == {waiting.request_id: FinishReason.LENGTH}
    assert waiting.output_token_ids == expected[0]


def test_a_part_that_fails_in_abort_ends_the_others_that_ran(labs: Path, folder: str) -> None:
    hand_in_faulty(labs, "engine", "EngineCore.abort")
    engine = make(folder, "engine")
    first, second = add(engine, PROMPTS[:2])
    engine.step()
    faults_of("engine").append(IndexError("boom"))
    assert engine.abort(first.request_id)
    assert drain(engine) == all_failed([second])
    assert not engine.abort(second.request_id)


def test_generate_raises_what_the_part_did(labs: Path, folder: str) -> None:
    hand_in_faulty(labs, "sampler", "Sampler.sample")
    engine = make(folder, "sampler")
    faults_of("sampler").append(IndexError("boom"))
    with pytest.raises(YaieError, match="your part sampler failed: IndexError: boom"):
        engine.generate(PROMPTS, PARAMS)
    assert not engine.has_work
    assert len(engine.generate(PROMPTS, PARAMS)) == 3


def test_no_absolute_path_and_no_endless_text_gets_into_the_message(
    labs: Path, folder: str
) -> None:
    hand_in_faulty(labs, "sampler", "Sampler.sample")
    engine = make(folder, "sampler")
    (request,) = add(engine, PROMPTS[:1])
    faults_of("sampler").append(OSError(f"cannot read {labs}/table.txt\n" + "x" * 5000))
    drain(engine)
    assert "OSError: cannot read table.txt xxx" in (request.error or "")
    assert str(labs) not in (request.error or "")
    assert len(request.error or "") < 400


def test_the_old_pool_is_gone_before_the_new_one_comes_and_is_as_large(
    labs: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The log keeps the error under pytest, and with it the frames.
    for name in ("yaie.engine.step.recovery", "yaie.worker.step_future"):
        monkeypatch.setattr(logging.getLogger(name), "error", lambda *_, **__: None)
    hand_in_faulty(labs, "sampler", "Sampler.sample")
    engine = make(folder, "sampler", num_blocks=None, kv_memory_share=0.001)
    pool = weakref.ref(engine._machine.worker.pool)  # type: ignore[attr-defined]
    alive: list[bool] = []
    assembled = engine._machine._made  # type: ignore[union-attr]

    def watched():
        alive.append(pool() is not None)
        return assembled()

    monkeypatch.setattr(engine._machine, "_made", watched)
    add(engine, PROMPTS[:1])
    faults_of("sampler").append(IndexError("boom"))
    drain(engine)
    gc.collect()
    assert alive == [False]
    assert engine._machine.sizes.num_blocks * engine.config.block_size == engine.pool_tokens


def test_parts_that_cannot_be_made_a_second_time_end_the_engine(labs: Path, folder: str) -> None:
    hand_in_faulty(labs, "sampler", "Sampler.sample")
    engine = make(folder, "sampler")
    add(engine, PROMPTS[:1])
    faults_of("sampler").append(IndexError("boom"))
    engine.backend.parts["sampler"].Sampler.__init__ = None
    with pytest.raises(EngineDeadError, match="cannot start again"):
        engine.step()


def test_an_engine_of_reference_parts_is_not_kept_alive(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make(folder, "none")
    add(engine, PROMPTS)
    monkeypatch.setattr(engine._machine.core.inner, "_executor", None)
    with pytest.raises(AttributeError):
        engine.step()
