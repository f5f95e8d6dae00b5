"""Servers in every state that a client may find one in, for programs of other environments."""

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.judges.clients.judging import KEY, LATE, POISON
from tests.judges.conftest import tiny_model_with_tools
from tests.server.conftest import serving
from tests.server.fake_engine import FakeEngine
from yaie.core.errors import EngineOverloadedError
from yaie.core.output import RequestOutput
from yaie.core.request import FailureKind, FinishReason, Request
from yaie.engine.llm_engine import LLMEngine

LIMIT = 4096


class FullEngine(FakeEngine):
    """Its queue is full."""

    def add_request(self, *_: Any, **__: Any) -> list[Request]:
        raise EngineOverloadedError("2048 requests wait already; try again later")


class FailingEngine(FakeEngine):
    """Fails at once for one prompt, and after three tokens of another; goes on after both."""

    def __init__(self) -> None:
        super().__init__()
        self.poison = POISON
        # A client has read the first tokens when the failure comes.
        self.step_seconds = 0.02

    def _advance(self, request: Request) -> RequestOutput:
        prompt = self.tokenizer.decode(request.token_ids[: request.num_prompt_tokens])
        if prompt != LATE or request.num_output_tokens < 3:
            return super()._advance(request)
        del self.alive[request.request_id]
        request.error, request.failure = "its logits are not finite", FailureKind.CORRUPTED
        return RequestOutput.of(request, "", [], FinishReason.ERROR)


class PacedEngine(LLMEngine):
    """3 ms a step at least: a stream's pieces are told apart by a client on a busy machine, too."""

    def step(self) -> list[RequestOutput]:
        time.sleep(0.003)
        return super().step()


@contextmanager
def every_state(folder: Path) -> Iterator[str]:
    """The JSON that `judging.Servers` is read from. `folder` is for the model's files."""
    model = tiny_model_with_tools(folder / "judged")
    config = json.loads((model / "config.json").read_text("utf-8"))
    # Frameworks put schemas into prompts, and the answer behind a call into the next one.
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": LIMIT}))

    def engine() -> LLMEngine:
        return PacedEngine(model=str(model), num_blocks=1024, threads=1, mine="none")

    with ExitStack() as stack:
        servers = {
            "judged": stack.enter_context(serving(engine)),
            "locked": stack.enter_context(serving(FakeEngine, api_key=(KEY,))),
            "full": stack.enter_context(serving(FullEngine)),
            "failing": stack.enter_context(serving(FailingEngine)),
        }
        urls = {name: f"{server.url}/v1" for name, server in servers.items()}
        yield json.dumps({**urls, "limit": LIMIT})
