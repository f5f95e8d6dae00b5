"""An engine without a model, for what a real one cannot be made to do on demand.

It answers a prompt with the prompt, upside down, one character a step. `step` waits at `gate` while
that is closed (`held` is set from then on), and raises `fault` once one is set. `pause_after` closes
the gate by itself after so many steps and sets `paused`. Each step takes `step_seconds`. A prompt that
is `poison` fails. `aborted` and `steps` tell what happened.
"""

import threading
import time
from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

from yaie.core.config import EngineConfig
from yaie.core.errors import ContextLengthError, InvalidRequestError
from yaie.core.output import RequestOutput
from yaie.core.params import SamplingParams
from yaie.core.request import FailureKind, FinishReason, Request, RequestStatus
from yaie.engine.info import EngineInfo
from yaie.models.chat_templates import checked_messages
from yaie.models.text_bounds import MAX_BYTES
from yaie.models.tokenizer import PromptText
from yaie.parts import load_part


class FakeTokenizer:
    """A token is a character."""

    has_chat_template = True
    chat_template = ""
    template_note = None
    max_bytes = MAX_BYTES

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [ord(char) for char in text]

    def special_token_id(self, text: str) -> None:
        return None

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(token) for token in ids)

    def apply_chat_template(
        self,
        messages: list[dict[str, Any]],
        *,
        tools: Any = None,
        **options: Any,
    ) -> list[int]:
        return self.encode(messages[-1]["content"])

    def chat_text(
        self, messages: list[dict[str, Any]], tools: Any = None, options: Any = None
    ) -> PromptText:
        messages = checked_messages(messages)
        return PromptText([self.decode(self.apply_chat_template(messages))], False)

    def encode_parts(self, prompt: PromptText) -> list[int]:
        return [token for part in prompt.parts for token in self.encode(str(part))]

    def fewest(self, prompt: PromptText) -> int:
        return prompt.num_chars

    def end(self, prompt: PromptText, num_tokens: int) -> PromptText:
        return prompt


class FakeEngine:
    def __init__(self, max_model_len: int = 1000) -> None:
        self.config = EngineConfig()
        self.model_name = "fake"
        self.model = SimpleNamespace(device=SimpleNamespace(type="fake"))
        self.input = SimpleNamespace(prepare=lambda: None)
        self.max_model_len = max_model_len
        self.tokenizer = FakeTokenizer()
        self.parts: list[Any] = []
        self.api = load_part("api_server", "none").package
        self.sampling_defaults: dict[str, Any] = {}
        self.pool_tokens = 16 * max_model_len
        self.gate = threading.Event()
        self.gate.set()
        self.held = threading.Event()
        self.fault: BaseException | None = None
        self.poison: str | None = None
        self.paused = threading.Event()
        self.step_seconds = 0.0
        self._pause_at: int | None = None
        self.aborted: list[str] = []
        self.priorities: list[int] = []
        self.steps = 0
        self.num_waiting = 0
        self.alive: dict[str, Request] = {}
        self.closed = False
        self._started: list[str] = []
        self._numbers = count()

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(
            config=self.config,
            model_name=self.model_name,
            model_folder="",
            model_type="",
            architecture="Fake",
            dtype="float32",
            dtype_note="",
            device="cpu",
            vocab_size=0x110000,
            num_parameters=0,
            weight_bytes=0,
            max_model_len=self.max_model_len,
            pool_tokens=self.pool_tokens,
            text_tokens=self.pool_tokens,
            full_texts=self.pool_tokens // self.max_model_len,
            sampling_defaults=self.sampling_defaults,
            backend="torch",
            backend_note="",
            decode_note="",
            parts=tuple(self.parts),
        )

    def add_request(
        self,
        prompt: str | list[int],
        params: SamplingParams | None = None,
        *,
        request_id: str | None = None,
        priority: int = 0,
    ) -> list[Request]:
        params = params or SamplingParams()
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else prompt
        if not ids:
            raise InvalidRequestError("the prompt is empty", param="prompt")
        if len(ids) >= self.max_model_len:
            raise ContextLengthError(f"{len(ids)} tokens do not fit {self.max_model_len}")
        requests = [
            Request(
                f"fake-{next(self._numbers)}",
                list(ids),
                params,
                max_tokens=min(params.max_tokens or len(ids), len(ids)),
                arrival_time=time.monotonic(),
                index=index,
            )
            for index in range(params.n)
        ]
        self.alive |= {request.request_id: request for request in requests}
        self.priorities.append(priority)
        return requests

    def encode_chat(self, messages: list[dict[str, Any]], tools: Any = None) -> list[int]:
        return self.tokenizer.apply_chat_template(messages, tools=tools)

    def check_params(self, params: SamplingParams) -> None:
        pass

    def pause_after(self, steps: int) -> None:
        self._pause_at = self.steps + steps

    def step(self) -> list[RequestOutput]:
        if self.steps == self._pause_at:
            self.gate.clear()
            self.paused.set()
        if not self.gate.is_set():
            self.held.set()
        self.gate.wait()
        time.sleep(self.step_seconds)
        self.steps += 1
        if self.fault is not None:
            raise self.fault
        return [self._advance(request) for request in list(self.alive.values())]

    def _advance(self, request: Request) -> RequestOutput:
        if request.scheduled_time is None:
            request.scheduled_time = time.monotonic()
            self._started.append(request.request_id)
        prompt = request.token_ids[: request.num_prompt_tokens]
        if self.tokenizer.decode(prompt) == self.poison:
            del self.alive[request.request_id]
            request.error, request.failure = "its logits are not finite", FailureKind.CORRUPTED
            return RequestOutput.of(request, "", [], FinishReason.ERROR)
        token = prompt[-1 - request.num_output_tokens]
        request.token_ids.append(token)
        reason = None
        if request.num_output_tokens == len(prompt):
            reason = FinishReason.STOP
        elif request.num_output_tokens == request.params.max_tokens:
            reason = FinishReason.LENGTH
        if reason is not None:
            request.finish_reason, request.status = reason, RequestStatus.FINISHED
            del self.alive[request.request_id]
        return RequestOutput.of(request, chr(token), [token], reason)

    @property
    def num_tokens(self) -> int:
        return 0

    def take_started(self) -> list[str]:
        started, self._started = self._started, []
        return started

    def tell_plans(self, tell: Any) -> None:
        """It plans nothing."""

    def abort(self, request_id: str) -> bool:
        self.aborted.append(request_id)
        return self.alive.pop(request_id, None) is not None

    @property
    def has_work(self) -> bool:
        return bool(self.alive)

    def stats(self) -> dict[str, float]:
        return {"num_running": len(self.alive), "num_waiting": self.num_waiting, "kv_usage": 0.0}

    def reset_prefix_cache(self) -> int:
        return 0

    def on_wake(self, wake: Any) -> None:
        """Nothing comes from elsewhere."""

    def on_loss(self, tell: Any) -> None:
        """It has no ranks."""

    def close(self) -> None:
        self.closed = True
