"""A tokenizer is the same without torch, which its process then never imports."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from yaie.models.tokenizer import Tokenizer
from yaie.models.torchless import load_tokenizer

TUTOR = Path(__file__).parents[2] / "yaie/models/tutor/weights"
CHAT = [{"role": "user", "content": "What is a block table? \N{SNOWMAN}"}]

SCRIPT = f"""
import json, sys
from pathlib import Path
from yaie.models.torchless import load_tokenizer

tokenizer = load_tokenizer(Path({str(TUTOR)!r}), "llama")
ids = tokenizer.apply_chat_template({CHAT!r})
text, described = tokenizer.decode(ids), tokenizer.describe()
assert "torch" not in sys.modules, "torch was imported"
import torch  # which is no worse for it
print(json.dumps([ids, text, described, torch.zeros(2).tolist()]))
"""


def test_it_answers_as_with_torch_and_leaves_torch_alone() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""  # transformers warns of nothing
    tokenizer = Tokenizer.load(TUTOR, "llama")
    ids = tokenizer.apply_chat_template(CHAT)
    assert json.loads(ran.stdout) == [
        ids,
        tokenizer.decode(ids),
        tokenizer.describe(),
        [0.0, 0.0],
    ]


def test_where_torch_is_imported_transformers_keeps_it() -> None:
    pytest.importorskip("torch")
    assert load_tokenizer(TUTOR, "llama").vocab_size == 4096
    from transformers.utils import is_torch_available

    assert is_torch_available()
