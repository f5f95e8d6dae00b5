"""What `yaie bench throughput` draws, and what it says of it before anything runs."""

import random

import pytest

from yaie.bench.throughput.asked import Asked, asked
from yaie.bench.throughput.drawn import (
    described,
    draw,
    fixed_jobs,
    ideal_hit_rate,
    nano_jobs,
    prefix_jobs,
    static_bound,
)
from yaie.bench.workload import Job, Lengths, Trace
from yaie.core.errors import ConfigError


def ask(**changes: object) -> Asked:
    given: dict[str, object] = {
        "workload": "random", "requests": None, "prompt_tokens": None, "output_tokens": None,
        "geometric": None, "batch": None, "prefix": {}, "seeds": "0,1,2", "peers": None,
        "peer_python": None, "ablation": False,
    }  # fmt: skip
    return asked(**(given | changes))  # type: ignore[arg-type]


def test_nano_draws_what_nano_vllm_draws() -> None:
    jobs = draw(ask(workload="nano"), 151936, seed=0)
    assert sum(len(job.prompt) for job in jobs) == 142_827
    assert sum(job.num_output for job in jobs) == 133_966
    random.seed(0)
    prompts = [
        [random.randint(0, 10000) for _ in range(random.randint(100, 1024))] for _ in range(256)
    ]
    assert [job.prompt for job in jobs] == prompts
    assert [job.num_output for job in jobs] == [random.randint(100, 1024) for _ in range(256)]


def test_nano_stays_within_a_small_vocabulary() -> None:
    jobs = nano_jobs(20, Lengths((50, 60), (1, 2)), 300, seed=0)
    assert max(max(job.prompt) for job in jobs) in range(250, 300)


def test_the_first_seed_runs_twice() -> None:
    assert ask(seeds="7,3").order == (7, 7, 3)
    assert "seeds 7, 3" in described(ask(seeds="7,3"))


def test_prompts_of_a_group_share_their_prefix_and_nothing_else() -> None:
    wanted = ask(
        workload="prefix",
        prefix={"groups": 3, "group_size": 2, "shared_tokens": 40, "own_tokens": 8},
        output_tokens="5",
    )
    jobs = prefix_jobs(wanted, 5000, 0, shares=True)
    assert len({tuple(job.prompt[:40]) for job in jobs}) == 3
    assert jobs[0].prompt[:40] == jobs[3].prompt[:40] != jobs[1].prompt[:40]
    assert len({tuple(job.prompt[40:]) for job in jobs}) == 6
    alone = prefix_jobs(wanted, 5000, 0, shares=False)
    assert len({tuple(job.prompt[:40]) for job in alone}) == 6
    assert {(len(job.prompt), job.num_output) for job in [*jobs, *alone]} == {(48, 5)}
    assert ideal_hit_rate(wanted, 16) == 1 / 2 * 32 / 48


def test_fixed_prompts_share_nothing() -> None:
    jobs = fixed_jobs(4, 20, 1, 5000, seed=0)
    assert {len(job.prompt) for job in jobs} == {20}
    assert len({job.prompt[0] for job in jobs}) == 4


def test_the_bound_on_static_batches_counts_the_rows_that_wait_for_the_longest() -> None:
    jobs = [Job([0], length) for length in (1, 4, 2, 2, 3)]
    assert static_bound(jobs, 2) == {"useful": 12, "computed": 8 + 4 + 3, "ratio": 15 / 12}


def test_random_alone_has_a_peer_unless_one_is_named() -> None:
    assert ask().peers == ("transformers",)
    assert ask(ablation=True).peers == ()
    assert ask(peers=["none"]).peers == ()
    assert ask(peers=["static", "vllm", "static"]).peers == ("static", "vllm")
    assert ask(workload="nano").peers == ()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": "0;1"}, "whole numbers joined by commas"),
        ({"workload": "nano", "geometric": 5.0}, "--geometric does not go with --workload nano"),
        ({"prefix": {"group_size": 4}}, "--group-size does not go with --workload random"),
        ({"workload": "fixed", "requests": 4}, "--requests does not go with --workload fixed"),
        ({"workload": "fixed", "prompt_tokens": "5-9"}, "--prompt-tokens is one number"),
        ({"workload": "prefix", "peers": ["vllm"]}, "--peer does not go with --workload prefix"),
        ({"workload": "prefix", "ablation": True}, "--ablation does not go with"),
        ({"peers": ["tgi"]}, "there is no 'tgi'"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ask(**changes)


def test_a_rate_is_tokens_by_seconds() -> None:
    assert Trace(seconds=4.0, output_tokens=10).tokens_per_second == 2.5
