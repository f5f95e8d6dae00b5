"""`yaie serve` started by torchrun with a GPU for each rank: NCCL behind the sealed store gives the
tokens of one GPU, and ends when a rank does. Each of two hosts is this one, and sees one of its GPUs."""

import psutil
import pytest
import torch

from tests.cli.test_serve import address_in
from tests.cli.test_serve_hosts import (
    PROMPTS,
    SMALL,
    Host,
    expect_ends,
    free_port,
    greedy,
    started,
    two,
)
from tests.cli.test_serve_ranks import begin
from tests.server.conftest import within
from yaie import LLMEngine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs"),
]


def torchrun(node: int, port: int, *args: str) -> Host:
    """The launcher on one of two hosts, with one rank. port: where they meet."""
    return started(
        ["-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={node}", "--nproc-per-node=1",
         "--master-addr=127.0.0.1", f"--master-port={port}", "-m", "yaie", "serve", *args,
         "--port=0", "--dtype=float32", *SMALL],
        CUDA_VISIBLE_DEVICES=node, NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT",
    )  # fmt: skip


@pytest.fixture(scope="module")
def expected() -> list[str]:
    """What one GPU answers."""
    engine = LLMEngine(model="tutor", num_blocks=64, mine="none", dtype="float32")
    try:
        return engine.generate(PROMPTS, temperature=0.0, max_tokens=24, ignore_eos=True)
    finally:
        engine.close()


@pytest.mark.parametrize(
    "shape",
    [
        ("--tensor-parallel=2", "--collectives=library"),
        ("--tensor-parallel=2",),
        ("--pipeline-parallel=2",),
    ],
    ids=["2x1 nccl", "2x1", "1x2"],
)
def test_two_hosts_give_the_tokens_of_one_gpu_and_end_when_one_dies(
    shape: tuple[str, ...], expected: list[str]
) -> None:
    port = free_port()
    with two(torchrun(0, port, "tutor", *shape), torchrun(1, port, "tutor", *shape)) as hosts:
        first, second = hosts
        url = address_in(first.process, first.lines)
        assert [greedy(url, prompt) for prompt in PROMPTS] == expected
        assert "NCCL INFO" in first.said()
        answers: list[str] = []
        thread = begin(url, answers)
        within(30, lambda: len(answers) > 3)
        for one in [psutil.Process(second.process.pid), *second.ranks()]:
            one.kill()
        expect_ends(hosts)
        thread.join(20)
        assert "engine_dead" in "".join(answers[-2:])
