"""A configuration is checked as ever, without what transformers imports for its table of activations."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.models.tiny import tiny_model

SCRIPT = """
import sys
from pathlib import Path

import pytest
import torch
from yaie.models.activation_names import import_checks
from yaie.models.config import read_config

read_config(Path(sys.argv[1]))
heavy = {"sympy", "torch._dynamo", "torch.distributed.tensor", "transformers.activations"}
assert not heavy & sys.modules.keys(), heavy & sys.modules.keys()
from transformers.utils.type_validators import ACT2FN

assert "silu" in ACT2FN and len(ACT2FN)
assert "transformers.activations" not in sys.modules
assert "quick_gelu" in ACT2FN  # not a usual one: transformers' own table has it
from transformers import activations

assert list(ACT2FN) == list(activations.ACT2FN)
assert "no such thing" not in ACT2FN
"""


@pytest.mark.nightly
def test_a_config_is_read_without_torchs_compiler_and_names_are_still_checked(
    tmp_path: Path,
) -> None:
    folder = tiny_model("llama", tmp_path / "llama")
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
