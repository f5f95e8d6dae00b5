"""Benchmarks are run as commands: in this process, on a tiny random model."""

from tests.cli.conftest import _own_state, tiny_folder, yaie

__all__ = ["_own_state", "tiny_folder", "yaie"]
