"""`make chat BACKEND=triton` runs where there is no GPU, in Triton's interpreter."""

import shutil
import subprocess

import pytest

from grader.report.next import DEVICES, has_gpu
from yaie.curriculum.manifest import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


def command(target, *variables):
    run = subprocess.run(
        ["make", "-n", "-C", str(ROOT), target, *variables], capture_output=True, text=True
    )
    return run.stdout.splitlines()


def test_the_makefile_looks_for_a_gpu_where_the_report_does():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert f"$(wildcard {' '.join(DEVICES)})" in makefile


@pytest.mark.parametrize("target", ["chat", "serve"])
def test_a_backend_is_passed_on_and_triton_is_interpreted_without_a_gpu(target):
    [triton] = [line for line in command(target, "BACKEND=triton") if "--backend" in line]
    assert triton.startswith("TRITON_INTERPRET=1 ") is not has_gpu()
    assert f"yaie {target}" in triton
    [cuda] = [line for line in command(target, "BACKEND=cuda") if "--backend cuda" in line]
    assert "TRITON_INTERPRET" not in cuda
    assert not any("--backend" in line for line in command(target))
