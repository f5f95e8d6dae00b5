"""`yaie doctor`."""

import pytest

from tests.cli.conftest import Yaie
from yaie.cli import doctor
from yaie.server.listen import listen


def test_machine_that_runs_the_cpu_engine_is_well(yaie: Yaie) -> None:
    ran = yaie("doctor", "--port", "0")
    assert ran.code == 0
    for subject in (
        "Python",
        "PyTorch",
        "memory",
        "tutor model",
        "GPU",
        "Triton",
        "nvcc",
        "sampler",
    ):
        assert subject in ran.out


def test_taken_port_is_said_and_does_no_harm(yaie: Yaie) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        ran = yaie("doctor", "--port", str(port))
    assert ran.code == 0
    assert f"port {port}" in ran.out
    assert "in use" in ran.out


def test_missing_need_is_exit_code_1(yaie: Yaie, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = doctor.Finding("PyTorch", False, "not installed", "pip install torch", needed=True)
    monkeypatch.setattr(doctor, "_torch", lambda: [missing])
    ran = yaie("doctor", "--port", "0")
    assert ran.code == 1
    assert "pip install torch" in ran.out
