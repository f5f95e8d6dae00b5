"""`yaie top`: what it makes of records, and how it begins and ends."""

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live

from tests.cli.conftest import Yaie
from tests.cli.test_serve import ROOT, address_in, server
from yaie.cli.top import line, screen
from yaie.cli.top_state import Seen
from yaie.system.terminal import Terminal

SAMPLES = ROOT / "yaie/server/web/samples"


def seen(name: str, until: int) -> Seen:
    """After so many steps of a recording."""
    shown = Seen()
    for text in (SAMPLES / name).read_text("utf-8").splitlines():
        record = json.loads(text)
        shown.take(record)
        if record.get("n", 0) == until:
            break
    return shown


def test_it_shows_what_runs_waits_and_is_cached() -> None:
    shown = seen("preemption.jsonl", 21)  # the fourth has lost its blocks
    assert [shown.n, shown.num_waiting, shown.running] == [21, 1, ["A", "B", "C"]]
    assert shown.requests["B"].cached == 32
    assert shown.requests["B"].output == shown.requests["C"].output == 20
    assert len(shown.requests["A"].table) == 5
    assert shown.tokens_per_second > 0


@pytest.mark.parametrize("width", [60, 100, 160])
def test_the_screen_fits_the_terminal(width: int, tmp_path: Path) -> None:
    shown = seen("preemption.jsonl", 21)
    with (tmp_path / "screen").open("w+") as file:
        Console(file=file, width=width).print(screen(shown, width))
        file.seek(0)
        lines = file.read().splitlines()
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "all parts are the reference" in text
    assert "1 wait" in text
    for request in "ABC":
        assert any(
            each.split()[:2] == [request, "48" if request == "A" else "47"] for each in lines
        )


def test_terminal_codes_in_an_answer_do_nothing() -> None:
    shown = seen("four.jsonl", 3)
    shown.requests["A"].says = "\x1b[2J\x07gone"
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(screen(shown, 100))
    assert "\x1b" not in console.export_text()


def test_your_parts_are_named() -> None:
    shown = Seen()
    shown.take({"kind": "header", "parts": [{"lab": "sampler", "whose": "yours"}]})
    assert shown.whose == "your sampler"


def test_one_line_says_it_all() -> None:
    assert line(seen("preemption.jsonl", 21)).split()[3:5] == ["3", "1"]


def test_fewer_threads_beside_other_programs_are_told() -> None:
    shown = seen("four.jsonl", 3)
    assert shown.lowered_threads is None
    shown.take(
        {
            "kind": "snapshot",
            "stats": {"kv_usage": 0.1, "hit_rate": 0.0, "threads": 1, "threads_wanted": 2},
        }
    )
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(screen(shown, 100))
    assert "1 of 2 threads, as other programs keep the cores busy" in console.export_text()


def test_usage_is_told_by_group_where_some_layers_have_a_window() -> None:
    shown = seen("four.jsonl", 3)
    stats = {"kv_usage": 0.41, "hit_rate": 0.0, "full_kv_usage": 0.41, "windowed_kv_usage": 0.125}
    shown.take({"kind": "snapshot", "stats": stats})
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(screen(shown, 100))
    text = console.export_text()
    assert "KV full, windows" in text
    assert "41.0%, 12.5%" in text


def test_no_server_and_no_server_of_ours(yaie: Yaie) -> None:
    ran = yaie("top", "http://127.0.0.1:9")
    assert ran.code == 2
    assert "no server answers at http://127.0.0.1:9" in ran.err
    assert "yaie serve" in ran.err
    ran = yaie("top", "http://[/x]")
    assert (ran.code, "Traceback" in ran.err) == (2, False)
    assert "no server answers at http://[/x]" in ran.err


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGINT")
def test_it_follows_a_server_and_ends_with_ctrl_c() -> None:
    with server("--mine=none", "--api-key=secret", "--xray") as (process, lines):
        url = address_in(process, lines)
        command = [sys.executable, "-c", "from yaie.cli.main import main; main()", "top", url]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        refused = subprocess.run(
            command, capture_output=True, text=True, env=environment, check=False
        )
        assert refused.returncode == 2
        assert "--api-key" in refused.stderr
        top = subprocess.Popen(
            [*command, "--api-key", "secret"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        assert top.stdout is not None
        assert "tokens/s" in top.stdout.readline()
        assert top.stdout.readline().split()[2:5] == ["0", "0", "0"]
        begin = time.monotonic()
        top.send_signal(signal.SIGINT)
        _, said = top.communicate(timeout=20)
        assert time.monotonic() - begin < 5
        assert top.returncode == 130
        assert "Traceback" not in said
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


NAMES = ["[/x]", "[red]", "\x1b[2J[bold]", "a\nb", ":boom:"]


def test_names_and_texts_of_clients_are_shown_as_they_are() -> None:
    shown = seen("four.jsonl", 3)
    shown.header["model"] = "models/[/x]\x1b[2J"
    row = shown.requests["A"]
    shown.running = NAMES
    shown.requests = {name: replace(row, says=f"{name} says") for name in NAMES}
    file = io.StringIO()
    with Live(
        console=Terminal(file=file, width=100, height=30, force_terminal=True, color_system=None),
        auto_refresh=False,
        screen=True,
    ) as live:
        live.update(screen(shown, 100), refresh=True)
    text = file.getvalue()
    assert "YAIE models/[/x][2J" in text
    for name in ("[/x]", "[red]", "[2J[bold]", "a b", ":boom:"):
        assert re.search(rf"{re.escape(name)} +\d+ .*{re.escape(name)} says", text), name
    assert "\x1b[2J[bold]" not in text


def answering(reply: bytes) -> tuple[socket.socket, str]:
    """A server that says this to its first client, and its address."""
    server = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        client, _ = server.accept()
        with client:
            client.recv(4096)
            client.sendall(reply)

    threading.Thread(target=answer, daemon=True).start()
    return server, f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    "reply",
    [
        b"SSH-2.0-OpenSSH_9.6 [/x]\r\n",
        b"HTTP/1.0 200 OK\r\n\r\ndata: [/x]\n\n",
        b"HTTP/1.0 200 OK\r\n\r\ndata: [1]\n\n",
        b'HTTP/1.0 200 OK\r\n\r\ndata: {"kind": "step"}\n\n',
    ],
)
def test_what_is_no_server_of_ours_is_an_error_of_one_paragraph(yaie: Yaie, reply: bytes) -> None:
    server, url = answering(reply)
    with server:
        ran = yaie("top", url)
    assert ran.code == 2
    assert ran.err.startswith("Error: ")
    assert "`yaie serve`" in ran.err
    assert "Traceback" not in ran.err
