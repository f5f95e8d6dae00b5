"""What flags of `yaie serve` do that no other test sees. `test_serve_flags.py` has the table of all."""

import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from solutions.cuda_graphs import OverlappedLoop
from tests.cli.conftest import Yaie
from yaie import EngineConfig, LLMEngine, SamplingParams
from yaie.core.errors import ConfigError, EngineOverloadedError, YaieError
from yaie.core.request import Request
from yaie.engine.background.async_engine import AsyncEngine
from yaie.engine.handover.address import TcpAddress, UnixAddress
from yaie.engine.handover.role import Role
from yaie.server.settings import ServerSettings
from yaie.worker.deterministic import TiledAdapter
from yaie.worker.parallel.launch import Launch

PROMPT = list(range(5, 37))
GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)
Make = Callable[..., LLMEngine]


@dataclass
class Seen:
    """What a run of `yaie serve` made of its flags, up to the moment at which it would serve."""

    config: EngineConfig = field(default_factory=EngineConfig)
    settings: ServerSettings = field(default_factory=ServerSettings)
    address: tuple[str, int] = ("", 0)
    logging: tuple[Any, ...] = ()
    role: Role | None = None
    launch: Launch | None = None


@pytest.fixture
def served(yaie: Yaie, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Seen]:
    """Run `yaie serve FLAGS` and end it where the server would start to answer."""
    seen = Seen()

    class Recorded(AsyncEngine):
        def __init__(self, load: Any, **options: Any) -> None:
            seen.config, seen.role, seen.launch = load.args
            super().__init__(load, **options)

    async def end(engine: Any, app: Any, listener: socket.socket, settings: Any, **_: Any) -> None:
        seen.address = listener.getsockname()
        seen.settings = settings
        listener.close()
        raise YaieError("seen")

    def log(*arguments: Any) -> None:
        seen.logging = arguments

    monkeypatch.setattr("yaie.server.engine.AsyncEngine", Recorded)
    monkeypatch.setattr("yaie.server.run.run_server", end)
    monkeypatch.setattr("yaie.server.logs.start_logging", log)

    def run(*flags: str) -> Seen:
        port = () if "--port" in flags else ("--port", "0")
        ran = yaie("serve", *flags, *port)
        assert ran.err == "Error: seen\n"
        return seen

    return run


def test_it_listens_where_it_is_told(served: Callable[..., Seen]) -> None:
    with socket.socket() as probe:
        probe.bind(("0.0.0.0", 0))
        port = probe.getsockname()[1]
    assert served("--host", "0.0.0.0", "--port", str(port)).address == ("0.0.0.0", port)


def test_it_logs_as_it_is_told(served: Callable[..., Seen], tmp_path: Path) -> None:
    file = str(tmp_path / "log")
    flags = ("--log-level", "debug", "--log-file", file, "--log-json")
    assert served(*flags).logging == ("debug", file, True)


def test_role_and_handover(served: Callable[..., Seen], yaie: Yaie) -> None:
    assert served().role is None
    flags = ("--role", "decode", "--handover", "some/socket", "--handover-tokens", "7")
    assert served(*flags).role == Role("decode", UnixAddress(Path("some/socket")), 7)
    between_hosts = served(*flags[:2], "--handover", "far:9000").role
    assert between_hosts == Role("decode", TcpAddress("far", 9000), 64)
    assert "has no effect" in yaie("serve", "--handover", "some/socket").err
    assert "needs handover" in yaie("serve", "--role", "prefill").err
    assert "there is no folder some" in yaie("serve", *flags[2:4], "--role", "prefill").err
    tensor = yaie("serve", *flags, "--tensor-parallel", "2")
    assert "tensor_parallel 2 does not go with role 'decode'" in tensor.err
    assert "step does not go with role" in yaie("serve", *flags, "--step").err
    prefill = yaie("serve", *flags[2:], "--role", "prefill")
    assert "handover_tokens 7 has no effect" in prefill.err
    assert "between 1 and 65535" in yaie("serve", *flags[:2], "--handover", "far:70000").err


def test_the_secret_of_a_handover(served: Callable[..., Seen], yaie: Yaie, tmp_path: Path) -> None:
    file = tmp_path / "key"
    flags = ("--role", "decode", "--handover", "far:9000", "--handover-key-file", str(file))
    assert "cannot read" in yaie("serve", *flags).err
    file.write_text("short\n")
    assert "has 5 bytes, and a secret needs 16" in yaie("serve", *flags).err
    file.write_text(f"{'long' * 8}\n")
    role = served(*flags).role
    assert role is not None
    assert role.secret == b"long" * 8
    assert "longlong" not in repr(role)
    assert "has no effect" in yaie("serve", *flags[4:]).err


@pytest.fixture
def make(tiny_folder: str) -> Iterator[Make]:
    """An engine on the tiny model with these settings."""
    before = torch.get_num_threads()
    base = {"model": tiny_folder, "device": "cpu", "mine": "none"}
    yield lambda **settings: LLMEngine(EngineConfig(**{"num_blocks": 64, **base, **settings}))
    torch.set_num_threads(before)


def steps(engine: LLMEngine, count: int) -> None:
    for _ in range(count):
        engine.step()


def add(engine: LLMEngine, prompt: list[int], **options: Any) -> Request:
    (request,) = engine.add_request(prompt, GREEDY, **options)
    return request


def test_model(make: Make, tiny_folder: str) -> None:
    assert make().model_name == Path(tiny_folder).name


def test_dtype(make: Make) -> None:
    assert make(dtype="bfloat16").info.dtype == "bfloat16"


def test_kv_dtype(make: Make) -> None:
    engine = make(kv_dtype="int8", backend="torch")
    add(engine, PROMPT)
    steps(engine, 1)
    assert "quantization" in [part.lab for part in engine.info.parts]
    with pytest.raises(ConfigError, match=r"int8.* does not go with backend 'triton'"):
        make(kv_dtype="int8", backend="triton")


def test_device(make: Make) -> None:
    if torch.cuda.is_available():
        assert make(device="cuda").info.device == "cuda"
        assert make(device="cpu").info.device == "cpu"
    else:
        with pytest.raises(ConfigError, match="torch sees no GPU"):
            make(device="cuda")


@pytest.mark.skipif("os.name == 'nt'", reason="Triton is not for Windows")
def test_backend(make: Make) -> None:
    pytest.importorskip("triton")
    assert os.environ.get("TRITON_INTERPRET") == "1" or torch.cuda.is_available()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    assert make(backend="triton", device=device).info.backend == "triton"
    assert make(backend="torch", device=device).info.backend == "torch"


def test_block_size_and_num_blocks(make: Make) -> None:
    assert make(block_size=8, num_blocks=50).pool_tokens == 400


def test_max_model_len(make: Make) -> None:
    assert make(max_model_len=100).info.max_model_len == 100


def test_max_num_seqs(make: Make) -> None:
    engine = make(max_num_seqs=2)
    for start in range(3):
        add(engine, PROMPT[start:])
    steps(engine, 2)
    assert engine.stats()["num_running"] == 2


def test_token_budget(make: Make) -> None:
    engine = make(token_budget=8)
    request = add(engine, PROMPT)
    steps(engine, 1)
    assert request.num_computed_tokens == 8


def test_a_cpu_computes_fewer_tokens_a_step_by_itself(make: Make) -> None:
    engine = make(device="cpu")
    long = add(engine, [5, 6, 7, 8] * 200)
    steps(engine, 1)
    assert long.num_computed_tokens == 512


def test_chunked_prefill(make: Make) -> None:
    engine = make(token_budget=8, chunked_prefill=False)
    request = add(engine, PROMPT)
    steps(engine, 1)
    assert request.num_computed_tokens == len(PROMPT)


def test_max_waiting(make: Make) -> None:
    engine = make(max_waiting=1)
    add(engine, PROMPT)
    with pytest.raises(EngineOverloadedError):
        add(engine, PROMPT)


def test_policy(make: Make) -> None:
    engine = make(policy="priority", max_num_seqs=1)
    requests = [add(engine, PROMPT[start:], priority=rank) for start, rank in ((0, 5), (1, 0))]
    steps(engine, 1)
    assert [request.num_output_tokens for request in requests] == [0, 1]


def test_batching(make: Make) -> None:
    engine = make(batching="static")
    add(engine, PROMPT)
    steps(engine, 2)
    late = add(engine, PROMPT[1:])
    steps(engine, 2)
    assert late.num_computed_tokens == 0


def test_overlap(make: Make) -> None:
    engine = make(overlap="on")
    assert isinstance(engine._machine.core.inner, OverlappedLoop)
    engine.close()


def test_speculate_and_num_drafts(make: Make) -> None:
    engine = make(speculate="ngram", num_drafts=2)
    add(engine, [5, 6, 7, 8] * 4)
    steps(engine, 1)
    assert engine.stats()["draft_tokens"] == 2


def test_draft_model(make: Make) -> None:
    target = make().config.model
    engine = make(speculate="draft", num_drafts=2, draft_model=target)
    add(engine, PROMPT)
    steps(engine, 3)
    assert engine.stats()["accepted_draft_tokens"] == engine.stats()["draft_tokens"] > 0


def test_prefix_caching(make: Make) -> None:
    engine = make(prefix_caching=False)
    for _ in range(2):
        request = add(engine, PROMPT)
        while engine.has_work:
            engine.step()
    assert request.num_cached_tokens == 0


def test_preemption_and_swap_space(make: Make) -> None:
    engine = make(preemption="swap", swap_space=0.01)
    sizes = engine._machine.sizes
    assert sizes.num_host_blocks == int(0.01 * 2**30) // sizes.bytes_per_block


def test_watermark(make: Make) -> None:
    engine = make(watermark=0.7, num_blocks=10)
    add(engine, PROMPT)
    later = add(engine, PROMPT[::-1])
    steps(engine, 3)
    assert later.num_computed_tokens == 0


def test_seed(make: Make) -> None:
    drawn = SamplingParams(temperature=2, max_tokens=8, ignore_eos=True)
    assert len({make(seed=seed).generate(PROMPT, drawn)[0] for seed in (1, 1, 2)}) == 2


def test_deterministic(make: Make) -> None:
    engine: Any = make(deterministic=True)
    assert isinstance(engine._machine.worker.adapter, TiledAdapter)


def test_threads(make: Make) -> None:
    for number in (1, 2):
        make(threads=number)
        assert torch.get_num_threads() == number
