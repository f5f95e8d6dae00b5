"""The overlapped loop gives what lab 7's loop gives, and undoes what it learns late."""

import json

import jsonschema
import pytest
import torch

from tests.engine.constrained import PERSON, schema
from tests.engine.mixed import GREEDY, LONG, POOLS, add_all, close, run
from tests.models.tiny import tiny_model
from yaie import LLMEngine, SamplingParams
from yaie.core.request import FinishReason


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.set_num_threads(1)
    return str(tiny_model("llama", tmp_path_factory.mktemp("models") / "llama"))


@pytest.mark.parametrize("pool", POOLS)
def test_tokens_texts_and_ends_equal_the_synchronous_loops(folder: str, pool: str) -> None:
    engines = [LLMEngine(model=folder, overlap=how, **POOLS[pool]) for how in ("off", "on")]
    both = [add_all(engine) for engine in engines]
    texts = [run(engine) for engine in engines]
    assert texts[0] == texts[1]
    for one, other in zip(*both, strict=True):
        assert one.token_ids == other.token_ids
        assert (one.finish_reason, one.stop_reason) == (other.finish_reason, other.stop_reason)
        assert close(one.logprobs, other.logprobs)
        assert close(one.prompt_logprobs, other.prompt_logprobs)
    if POOLS[pool]["num_blocks"] == 11:
        assert all(engine.stats()["preemptions"] >= 2 for engine in engines)
    for engine in engines:
        assert engine.stats()["used_blocks"] == 0
        engine.close()


def test_constrained_outputs_fit_their_schema(folder: str) -> None:
    engine = LLMEngine(model=folder, overlap="on", num_blocks=300)
    params = [
        SamplingParams(seed=seed, max_tokens=200, constraint=schema(PERSON)) for seed in range(6)
    ]
    requests = [engine.add_request([9, 8, 7], one)[0] for one in params]
    texts = run(engine)
    ended = [r for r in requests if r.finish_reason is FinishReason.STOP]
    assert len(ended) >= 4
    for request in ended:
        jsonschema.validate(json.loads(texts[request.request_id]), PERSON)


@pytest.mark.parametrize("pool", ["roomy", "recompute", "swap"])
def test_aborts_at_any_step_disturb_no_one_else(folder: str, pool: str) -> None:
    quiet = LLMEngine(model=folder, num_blocks=300)
    reference = add_all(quiet)
    run(quiet)
    engine = LLMEngine(model=folder, overlap="on", **POOLS[pool])
    requests = add_all(engine)
    doomed = requests[::3]

    def abort(step: int) -> None:
        if step % 3 == 0 and step // 3 <= len(doomed):
            engine.abort(doomed[step // 3 - 1].request_id)

    run(engine, abort)
    for request, wanted in zip(requests, reference, strict=True):
        if request.finish_reason is not FinishReason.ABORT:
            assert request.token_ids == wanted.token_ids
    assert any(request.finish_reason is FinishReason.ABORT for request in doomed)
    assert engine.stats()["used_blocks"] == 0


def test_a_token_drawn_after_the_end_is_dropped(folder: str) -> None:
    engine = LLMEngine(model=folder, overlap="on", num_blocks=40)
    (probe,) = engine.add_request([5, 6, 7], SamplingParams(**GREEDY, ignore_eos=True))
    run(engine)
    stop = probe.output_token_ids[4]
    params = SamplingParams(**GREEDY, stop_token_ids=(stop,), ignore_eos=True)
    (request,) = engine.add_request([5, 6, 7], params)
    run(engine)
    end = probe.output_token_ids.index(stop) + 1
    assert request.output_token_ids == probe.output_token_ids[:end]
    assert request.stop_reason == stop
    assert engine.stats()["used_blocks"] == 0


def test_one_step_is_in_flight_while_the_one_before_is_taken_over(folder: str) -> None:
    engine = LLMEngine(model=folder, overlap="on", num_blocks=40)
    engine.add_request([5, 6, 7], SamplingParams(**GREEDY, ignore_eos=True))
    assert engine.step() == []
    computed = []
    while engine.has_work:
        outputs = engine.step()
        computed.append((engine.stats()["computed_tokens"], len(outputs)))
    # 3 prompt tokens and 19 that were drawn before the last; the last is never computed.
    assert computed[-1] == (22, 1)
    assert [told for _, told in computed] == [1] * 20
    assert computed[0][0] == 4  # when the first token is told, the second is being computed


def test_a_request_that_can_never_run_is_told_at_once(folder: str) -> None:
    engine = LLMEngine(
        model=folder, overlap="on", num_blocks=40, chunked_prefill=False, token_budget=16
    )
    engine._machine.scheduler.token_budget = 16
    (request,) = engine.add_request(LONG, SamplingParams(**GREEDY))
    (output,) = engine.step()
    assert output.request_id == request.request_id
    assert output.finish_reason is FinishReason.ERROR
    assert not engine.has_work


def test_static_batching_refuses_to_overlap(folder: str) -> None:
    from yaie.core.errors import ConfigError

    with pytest.raises(ConfigError, match="overlap"):
        LLMEngine(model=folder, overlap="on", batching="static")


def test_worker_thread_ends_with_its_engine(folder: str) -> None:
    import gc
    import threading

    def workers() -> int:
        return sum(thread.name == "yaie-worker" for thread in threading.enumerate())

    before = workers()
    engine = LLMEngine(model=folder, overlap="on", num_blocks=40)
    engine.generate([5, 6], temperature=0, max_tokens=2)
    assert workers() == before + 1
    del engine
    gc.collect()
    assert workers() == before
