"""Files that chapters show and that stand nowhere else: each works, or names only what exists."""

import json
import re
import subprocess
import sys

import pytest

from book.tools.blocks import read_chapter
from book.tools.mdbook import ROOT
from solutions.api_server.schemas import ChatRequest
from tests.marks import nightly_but
from yaie.bench.evidence import step_profile
from yaie.core.config import EngineConfig

EXAMPLES = ROOT / "book/examples"
# Talks to a server: a console block of its chapter runs it.
NEEDS_A_SERVER = {"openai_client.py"}
FOUND = sorted(path for path in EXAMPLES.glob("*.py") if path.name not in NEEDS_A_SERVER)
QUICK = {"shortest_first.py"}
PROGRAMS = nightly_but([path for path in FOUND if path.name in QUICK], FOUND)


@pytest.mark.parametrize("program", PROGRAMS, ids=[path.name for path in FOUND])
def test_a_program_runs(program):
    ran = subprocess.run(
        [sys.executable, program], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip()


def test_the_chapter_prints_the_profile_that_was_recorded():
    figures = json.loads((ROOT / "book/evidence/step_profile.json").read_text("utf-8"))
    [block] = [
        block
        for block in read_chapter("profiling")
        if block.commands and "step_profile" in block.commands[0].text
    ]
    assert list(block.commands[0].expected) == step_profile.lines(figures)


def test_the_configuration_file_is_accepted():
    changed = EngineConfig.load(environ={}, file=EXAMPLES / "yaie.toml").non_default()
    assert changed == {"block_size": 32, "max_num_seqs": 64, "token_budget": 1024, "policy": "lpm"}


def test_the_request_is_accepted():
    body = ChatRequest(**json.loads((EXAMPLES / "chat.json").read_text("utf-8")))
    assert body.token_limit == 40


@pytest.mark.parametrize("name", ["Dockerfile", "yaie.service"])
def test_only_flags_that_exist_are_given(name):
    shown = subprocess.run(
        [sys.executable, "-c", "from yaie.cli.main import main; main()", "serve", "--help"],
        capture_output=True,
        text=True,
        env={"COLUMNS": "200", "PATH": ""},
        cwd=ROOT,
    )
    [command] = re.findall(r"^(?:ENTRYPOINT|ExecStart=).*$", (EXAMPLES / name).read_text(), re.M)
    given = re.findall(r"--[\w-]+", command)
    assert given
    assert [flag for flag in given if flag not in shown.stdout] == []
