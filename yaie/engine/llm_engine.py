"""The engine behind `AsyncEngine`, the chat and scripts: takes requests, and computes step by step."""

from collections.abc import Callable

from yaie.core.batch import StepPlan
from yaie.core.errors import EngineOverloadedError
from yaie.core.output import RequestOutput
from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.engine.input.processor import Prompt
from yaie.engine.loaded import LoadedEngine
from yaie.engine.offline import Offline


class LLMEngine(LoadedEngine, Offline):
    """Serves requests on the parts in use. Not thread-safe: one caller at a time.

    `LoadedEngine` makes it (`_machine`, `input`), `Offline` runs requests to their end (`_router`).
    """

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
        if self._router is None:  # as in a server; Offline sets it for `generate` and its streams
            return outputs
        self._router.put(outputs)
        return self._router.take_unclaimed()

    def tell_plans(self, tell: Callable[[StepPlan], None] | None) -> None:
        """Call this with each plan before it is sent to the worker; None: no more."""
        self._counters.tell_plan(tell)

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
            **({} if self._held is None else self._held.usages(cache)),
        }

    def reset_prefix_cache(self) -> int:
        """Forget every cached prefix that no request uses; returns how many blocks that freed."""
        return self._machine.reset_prefix_cache()

    def on_wake(self, wake: Callable[[], None]) -> None:
        """Call this, on any thread, when `has_work` has become true without a call here. Of an engine
        that does everything itself it never does."""
