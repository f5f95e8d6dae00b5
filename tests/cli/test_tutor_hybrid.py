"""`tutor-hybrid` by its name: in a terminal, over HTTP, without a network."""

import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import Yaie
from tests.cli.test_serve import ROOT, address_in, server
from tests.server.fake_engine import FakeEngine
from yaie.models.hub import find_model

NAME = "tutor-hybrid"
ALONE = """
import socket, sys

def refuse(*asked, **how):
    print("THE NETWORK WAS ASKED", asked, file=sys.stderr, flush=True)
    raise OSError("there is no network")

socket.getaddrinfo = socket.create_connection = socket.socket.connect = refuse
from yaie.cli.main import main
main()
"""
"""The command where no address can be looked up or reached."""


@pytest.mark.slow
def test_a_chat_answers_and_goes_on_without_a_network(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", ALONE, "chat", "--model", NAME, "--num-blocks", "64"],
        input="What is a paged KV cache?\nand why does it help?\n",
        capture_output=True,
        text=True,
        timeout=120,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "XDG_STATE_HOME": str(tmp_path),
            "HF_HOME": str(tmp_path / "hub"),
            "HF_HUB_OFFLINE": "0",
        },
    )
    assert ran.returncode == 0, ran.stderr
    assert "NETWORK" not in ran.stderr
    answers = ran.stdout.strip().splitlines()
    assert len(answers) == 2
    assert "block table" in answers[0]
    assert "fragmentation" in answers[1]
    assert (tmp_path / "yaie" / "last_model").read_text() == NAME


@pytest.mark.slow
def test_a_server_lists_it_and_streams_its_answer() -> None:
    with server(NAME, "--num-blocks=64") as (process, lines):
        url = address_in(process, lines)
        models = httpx.get(f"{url}/v1/models", timeout=60).json()["data"]
        assert [model["id"] for model in models] == [NAME]
        asked = [{"role": "user", "content": "What is a paged KV cache?"}]
        body = {"model": NAME, "messages": asked, "stream": True}
        text = ""
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=60) as answer:
            assert answer.status_code == 200
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    for choice in json.loads(line.removeprefix("data: "))["choices"]:
                        text += choice["delta"].get("content") or ""
        assert "block table" in text
        other = httpx.post(
            f"{url}/v1/chat/completions", json={**body, "model": "tutor"}, timeout=60
        )
        assert other.status_code == 404
        process.terminate()
    assert "9.0 KiB a request, whatever its length" in "".join(lines)


def test_it_is_no_folder_though_there_is_one_of_its_name(
    yaie: Yaie, fake: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / NAME).mkdir()
    monkeypatch.chdir(tmp_path)
    assert yaie("chat", NAME).code == 0
    yaie("chat")
    assert fake.config.model == NAME
    assert find_model(NAME, None).folder.name == "hybrid"


def test_its_weights_are_not_rounded(yaie: Yaie, tmp_path: Path) -> None:
    ran = yaie("quantize", NAME, "--out", str(tmp_path / "q"))
    assert (ran.code, ran.out) == (2, "")
    assert "tutor-hybrid is Lfm2ForCausalLM, whose layers keep a state" in ran.err
    assert not (tmp_path / "q").exists()


def test_a_revision_of_it_is_refused(yaie: Yaie, fake: FakeEngine) -> None:
    ran = yaie("generate", "hi", "--model", NAME, "--revision", "main")
    assert ran.code == 2
    assert "an embedded model has no revisions" in ran.err
