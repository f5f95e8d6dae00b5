"""A Ray that does not come up in time is started once more. Ray is made up here."""

import logging
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from yaie.cluster.ray_start import start_ray
from yaie.cluster.settings import ClusterSettings
from yaie.core.errors import ConfigError

LATE = "The current node timed out during startup."
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


class SlowRay:
    """Its first starts fail, each with a process that is left behind; the next one's process stays."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.asked: list[dict[str, Any]] = []
        self.made: list[subprocess.Popen[bytes]] = []

    def init(self, **options: Any) -> None:
        self.asked.append(options)
        self.made.append(subprocess.Popen(SLEEP))
        if len(self.asked) <= self.failures:
            raise Exception(LATE)

    def runs(self) -> list[bool]:
        return [process.poll() is None for process in self.made]


@pytest.fixture
def slow_ray(monkeypatch: pytest.MonkeyPatch) -> Any:
    made: list[SlowRay] = []

    def make(failures: int) -> SlowRay:
        made.append(SlowRay(failures))
        monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=made[-1].init))
        return made[-1]

    yield make
    for process in (one for ray in made for one in ray.made):
        process.kill()
        process.wait()


def test_a_ray_that_is_late_once_is_started_again_and_its_processes_are_ended(
    slow_ray: Callable[[int], SlowRay], caplog: pytest.LogCaptureFixture
) -> None:
    bystander = subprocess.Popen(SLEEP)
    try:
        ray = slow_ray(1)
        with caplog.at_level(logging.WARNING):
            start_ray(ClusterSettings(), "yaie")
        assert ray.runs() == [False, True]
        assert ray.asked[0] == ray.asked[1]
        assert ray.asked[0]["address"] == "local"
        assert f"{LATE} It is started once more." in caplog.text
        assert psutil.Process(bystander.pid).is_running()
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_ray_that_is_late_twice_is_an_error_that_says_what_to_do(
    slow_ray: Callable[[int], SlowRay],
) -> None:
    ray = slow_ray(9)
    with pytest.raises(ConfigError, match=f"{LATE} If this machine is busy, try again later"):
        start_ray(ClusterSettings(), "yaie")
    assert ray.runs() == [False, False]


def test_a_ray_of_others_is_asked_once(slow_ray: Callable[[int], SlowRay]) -> None:
    ray = slow_ray(9)
    with pytest.raises(ConfigError, match="Ray cannot be reached at auto"):
        start_ray(ClusterSettings(ray_address="auto"), "yaie")
    assert [options["address"] for options in ray.asked] == ["auto"]
