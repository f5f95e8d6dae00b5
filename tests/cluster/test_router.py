"""The router that Ray Serve is given chooses as the naive list of prompts would."""

import subprocess

import pytest

from tests.cluster.install import python_with_ray
from tests.judges.programs import ROOT


def test_each_choice_is_the_naive_ones() -> None:
    if not python_with_ray().exists():
        pytest.skip("Ray is not installed: python -m tests.cluster.install")
    command = [str(python_with_ray()), "-m", "tests.cluster.route_randomly", "1", "2", "3"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout.split()[-1]) > 300  # else nothing was there to follow
