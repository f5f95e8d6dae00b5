"""The engine that everybody calls: requests in, what they gained out, one step at a time.

`AsyncEngine` runs it behind the server; `generate` and `chat_completion` are in `offline.py`.
"""

from collections.abc import Callable
from typing import Any

from yaie.core.batch import StepPlan
from yaie.core.config import EngineConfig
from yaie.core.contracts import ApiServer
from yaie.core.errors import EngineDeadError, EngineOverloadedError
from yaie.core.output import RequestOutput
from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.engine.build import build, overlaps
from yaie.engine.configured import configured
from yaie.engine.drafting.loading import load_drafting
from yaie.engine.info import EngineInfo
from yaie.engine.input.processor import InputProcessor, Prompt
from yaie.engine.loading import load_model
from yaie.engine.machine import Machine
from yaie.engine.offline import Json, Offline
from yaie.engine.step.counters import Counters
from yaie.engine.step.explaining import parts_in_steps
from yaie.engine.step.recovery import RecoveringMachine
from yaie.engine.step.thread_governor import governor_for
from yaie.parts import Part
from yaie.worker.parallel.launch import Launch
from yaie.worker.worker import Worker as LocalWorker


class LLMEngine(Offline):
    """Loads a model and serves requests on the parts in use. Not thread-safe: one caller at a time.

    max_model_len: longest sequence, prompt and output together.
    pool_tokens: token slots in the KV pool.
    backend: what the kernels are written in, and which labs they come from.
    """

    def __init__(
        self, config: EngineConfig | None = None, *, launch: Launch | None = None, **settings: Any
    ) -> None:
        """Settings override `config`; without one, environment and file are read too. launch: which has
        started the other ranks, over hosts; None if they are to be started here.

        Raises ConfigError, ModelError, PartError, or KernelError for CUDA that does not compile.
        """
        self.config = configured(config, settings)
        self.backend, self._model, self._ranks = load_model(self.config, launch)
        try:
            self._make()
        except BaseException:
            if self._ranks is not None:
                self._ranks.close()
            raise

    def _make(self) -> None:
        """Put together what runs the model."""
        self._drafting = load_drafting(self.config, self._model, self.backend)
        self.max_model_len = self._model.max_length
        self._counters = Counters()
        threaded = overlaps(self.config, self._model)
        self._governor = governor_for(self.config, self._model.device, threaded=threaded)
        self._machine: Machine | RecoveringMachine = self._assembled()
        if self._governor is not None and isinstance(self._machine.worker, LocalWorker):
            self._governor.measure(self._machine.worker)
        self.pool_tokens = self._machine.sizes.num_blocks * self.config.block_size
        self.input = InputProcessor(
            self.config, self._model, self.max_model_len, self.pool_tokens, self.backend.parts
        )

    def _assembled(self) -> Machine | RecoveringMachine:
        def make(config: EngineConfig) -> Machine:
            return build(
                config,
                self.backend,
                self._model,
                self._counters,
                drafting=self._drafting,
                ranks=self._ranks,
                observers=[] if self._governor is None else [self._governor],
            )

        if self._ranks is None and parts_in_steps(self.backend.parts):
            return RecoveringMachine(make, self.config, self.backend.parts)
        return make(self.config)

    @property
    def model_name(self) -> str:
        return self._model.name

    @property
    def model(self) -> Any:
        """The loaded model: tokenizer, dtype, device, sizes."""
        return self._model

    @property
    def tokenizer(self) -> Any:
        return self._model.tokenizer

    @property
    def sampling_defaults(self) -> Json:
        """Fields of SamplingParams that hold for a request which does not give them."""
        return self._model.sampling_defaults

    @property
    def api(self) -> ApiServer:
        """The part that puts answers into OpenAI's shape."""
        api: ApiServer = self.backend.parts["api_server"]
        return api

    @property
    def parts(self) -> list[Part]:
        """Whose parts run."""
        return self.backend.parts.table()

    @property
    def info(self) -> EngineInfo:
        """The engine's constants, as plain data."""
        return EngineInfo.of(
            self.config,
            self._model,
            self.backend,
            max_model_len=self.max_model_len,
            pool_tokens=self.pool_tokens,
            decode_note=self._machine.note,
            states=self._machine.sizes.states,
        )

    @property
    def has_work(self) -> bool:
        """Whether any request is not finished, or its last outputs have not been taken."""
        router = self._router
        return (router is not None and router.has_unclaimed) or self._machine.core.has_work

    @property
    def num_waiting(self) -> int:
        """Requests in the queue."""
        return self._machine.core.num_waiting

    def check_params(self, params: SamplingParams) -> None:
        """Raise InvalidRequestError for what `add_request` would refuse in them whatever the prompt.

        Compiles their constraint, so that `add_request` need not. May be called on another thread.
        """
        self.input.check(params)

    def add_request(
        self,
        prompt: Prompt,
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        priority: int = 0,
    ) -> list[Request]:
        """Queue a prompt (text or token ids); returns its `params.n` requests.

        Raises InvalidRequestError (ContextLengthError, KVPoolTooSmallError) if it can never run,
        EngineOverloadedError if the queue is full, and PartError if a learner's part fails on it.
        Whichever it is, nothing is queued.
        """
        params = params or self._sampling_params({})
        num_waiting = self.num_waiting
        if num_waiting + params.n > self.config.max_waiting:
            raise EngineOverloadedError(f"{num_waiting} requests wait already; try again later")
        return self._queue(prompt, params, request_id, priority)

    def _queue(
        self,
        prompt: Prompt,
        params: SamplingParams,
        request_id: str | None = None,
        priority: int = 0,
    ) -> list[Request]:
        """`add_request` for a caller who will wait, however long the queue."""
        requests = self.input.requests(prompt, params, request_id, priority)
        if requests[0].params.constraint is not None:
            self._machine.follow_grammars()
        self._enter(requests)
        return requests

    def _enter(self, requests: list[Request]) -> None:
        """Give the requests of a prompt to the scheduler: all of them, or none if it raises."""
        for index, request in enumerate(requests):
            try:
                self._machine.core.add_request(request)
            except BaseException:
                self._abort_all(requests[:index])
                raise

    def step(self) -> list[RequestOutput]:
        """Compute one step; returns what each request gained, also in steps that another caller's
        `generate` or stream took. What fails ends with FinishReason.ERROR (`isolated.py`)."""
        core = self._machine.core
        outputs = core.step() if core.has_work else []
        self._counters.stepped(outputs)
        if self._router is None:
            return outputs
        self._router.put(outputs)
        return self._router.take_unclaimed()

    def tell_plans(self, tell: Callable[[StepPlan], None] | None) -> None:
        """Call this with each plan before it is sent to the worker; None: no more."""
        self._counters.tell_plan(tell)

    @property
    def machine_parts(self) -> Machine | RecoveringMachine:
        """Scheduler, cache, blocks and tree, to be looked at. Another object after a part failed."""
        return self._machine

    @property
    def num_steps(self) -> int:
        """Steps since it started."""
        return self._counters.steps

    @property
    def num_tokens(self) -> int:
        """What vLLM counts, since the start: tokens of prompts, without those from the cache, and those
        generated.

        Not what forward passes computed: the first token of an answer comes without one of its own, and
        the last is never an input.
        """
        return self._counters.prefilled_tokens + self._counters.generation_tokens

    def take_started(self) -> list[str]:
        """Ids of the requests that had their first turn since the last call, and are not over."""
        return self._counters.take_started()

    def abort(self, request_id: str) -> bool:
        """End a request now; False if it is unknown or over."""
        if self._router is not None:
            self._router.drop(request_id)
        self._counters.over(request_id)
        return self._abort(request_id)

    def _abort(self, request_id: str) -> bool:
        return self._machine.core.abort(request_id)

    def stats(self) -> dict[str, float]:
        """How busy the engine is now, and what it has done since it started."""
        cache = self._machine.cache.stats()
        threads = {} if self._governor is None else self._governor.stats()
        return {
            "num_running": self._machine.scheduler.num_running,
            "num_waiting": self._machine.scheduler.num_waiting,
            "kv_usage": cache["used_blocks"] / cache["total_blocks"],
            "prefix_hit_rate": self._counters.cached_tokens / max(1, self._counters.prompt_tokens),
            **self._counters.as_dict(),
            **cache,
            **threads,
        }

    def reset_prefix_cache(self) -> int:
        """Forget every cached prefix that no request uses; returns how many blocks that freed."""
        return self._machine.reset_prefix_cache()

    def on_loss(self, tell: Callable[[EngineDeadError], None]) -> None:
        """Call this, on another thread, with the error when a rank is lost: the engine is dead then."""
        if self._ranks is not None:
            self._ranks.on_loss(tell)

    def on_wake(self, wake: Callable[[], None]) -> None:
        """Call this, on any thread, when `has_work` has become true without a call here. Of an engine
        that does everything itself it never does."""

    def close(self) -> None:
        """End the thread of the worker, if it has one, and other ranks. No step follows."""
        self._machine.worker.close()

    def check(self) -> None:
        """Verify the invariants of scheduler, tables, tree and blocks; raises InvariantError."""
        self._machine.scheduler.check()
        self._machine.cache.check()
