"""`yaie quantize`: what it writes, what it says, and what it refuses."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Yaie


@pytest.mark.parametrize("flags", [("--to", "int4", "--group-size", "16"), ("--to", "int8")])
def test_what_it_writes_is_served(
    yaie: Yaie, tiny_folder: str, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    out = str(tmp_path / "q")
    ran = yaie("quantize", tiny_folder, *flags, "--out", out, "--windows", "2")
    assert ran.code == 0, ran.err
    assert "bits for each of" in ran.out
    config = json.loads((tmp_path / "q" / "config.json").read_text())
    assert config["quantization_config"]["bits"] == int(flags[1][3:])
    answered = yaie("generate", "--model", out, "--max-tokens", "4", "Hello")
    assert answered.code == 0, answered.err
    again = yaie("quantize", out, *flags, "--out", str(tmp_path / "twice"))
    assert (again.code, "is quantised already" in again.err) == (2, True)


@pytest.mark.parametrize("name", ["text.txt", "talks.jsonl", "texts.jsonl"])
def test_calibration_comes_from_a_file(
    yaie: Yaie, tiny_folder: str, tmp_path: Path, name: str
) -> None:
    text = "A paged KV cache keeps keys and values in blocks. " * 200
    lines = {
        "text.txt": text,
        "talks.jsonl": json.dumps({"messages": [{"role": "user", "content": text}]}),
        "texts.jsonl": json.dumps({"text": text}) + "\n\n",
    }
    (tmp_path / name).write_text(lines[name])
    flags = ("--group-size", "16", "--calibration", str(tmp_path / name))
    ran = yaie("quantize", tiny_folder, *flags, "--out", str(tmp_path / "q"))
    assert ran.code == 0, ran.err
    assert "windows of 512 tokens" in ran.out


def test_what_makes_no_sense_is_refused_before_anything_is_read(
    yaie: Yaie, tiny_folder: str, tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    (tmp_path / "bad.jsonl").write_text("{}")
    new = str(tmp_path / "new")
    for flags, told in (
        (("--out", str(tmp_path / "full")), "is there already"),
        (("--out", new, "--group-size", "12"), "no multiple of 8"),
        (("--out", new, "--windows", "0"), "hold no text"),
        (("--out", new, "--calibration", str(tmp_path / "none")), "cannot be read"),
        (("--out", new, "--calibration", str(tmp_path / "bad.jsonl")), "KeyError"),
        (("--out", new, "--group-size", "128", "--nearest"), "Choose another --group-size"),
    ):
        ran = yaie("quantize", tiny_folder, *flags)
        assert (ran.code, told in ran.err) == (2, True), ran.err
        assert not Path(new).exists()
