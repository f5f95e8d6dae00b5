"""`yaie quantize`: what it writes, what it says, and what it refuses."""

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Yaie


@pytest.mark.parametrize(
    ("flags", "bits"),
    [
        (("--to", "int4", "--group-size", "16"), None),
        (("--to", "int4", "--symmetric", "--nearest"), 4),
        (("--to", "int8"), 8),
    ],
)
def test_what_it_writes_is_served(
    yaie: Yaie, tiny_folder: str, tmp_path: Path, flags: tuple[str, ...], bits: int | None
) -> None:
    """bits: as GPTQ's format tells them."""
    out = str(tmp_path / "q")
    ran = yaie("quantize", tiny_folder, *flags, "--out", out, "--windows", "2")
    assert ran.code == 0, ran.err
    assert "bits for each of" in ran.out
    config = json.loads((tmp_path / "q" / "config.json").read_text())
    assert config["quantization_config"].get("bits") == bits
    files = [*(tmp_path / "q").iterdir()]
    assert {oct(path.stat().st_mode & 0o777) for path in files} == {oct(default_mode(tmp_path))}
    answered = yaie("generate", "--model", out, "--max-tokens", "4", "Hello")
    assert answered.code == 0, answered.err
    again = yaie("quantize", out, *flags, "--out", str(tmp_path / "twice"))
    assert (again.code, "is quantized already" in again.err) == (2, True)


def default_mode(folder: Path) -> int:
    """Of a file that says nothing of its mode."""
    (folder / "plain").touch()
    return (folder / "plain").stat().st_mode & 0o777


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
        (
            ("--out", new, "--group-size", "128"),
            "which groups of 128 do not divide: --group-size 16",
        ),
    ):
        ran = yaie("quantize", tiny_folder, *flags)
        assert (ran.code, told in ran.err) == (2, True), ran.err
        assert not Path(new).exists()
