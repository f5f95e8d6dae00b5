"""A measured number is asked for, and one that is typed beside it is found; arithmetic is typed."""

import json

import pytest

from book.tools import evidence, typed
from book.tools.typed import faults, main, typed_numbers

RUN = "{{#value run:steps.1.step_ms .2f}}"
RATE = "{{#value run:copy_gbs ,.0f}}"
CEILING = "{{#value ceilings:bytes_per_second /1e9 ,.0f}}"


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    """A run, and a ceiling."""
    (tmp_path / "run.json").write_text(
        json.dumps(
            {
                "machine": {"threads": 1044},
                "steps": {"1": {"step_ms": 1.4962}, "8": {"step_ms": [2.1, 2.2876, 2.4]}},
                "copy_gbs": 4238.8,
                "waits": {"p50": 12.345, "rows": 1312},
            }
        )
    )
    (tmp_path / "ceilings.json").write_text(json.dumps({"bytes_per_second": 4274e9}))
    monkeypatch.setattr(evidence, "EVIDENCE", tmp_path)
    evidence.load.cache_clear()
    yield
    evidence.load.cache_clear()


@pytest.mark.parametrize(
    ("text", "number"),
    [
        (f"| rows | ms |\n|---|---|\n| 1 | {RUN} |\n| 8 | 2.29 |\n", "'2.29'"),
        (f"A step takes {RUN} ms in place of 1.44.", "1.44"),
        (f"A step takes {RUN} ms,\nbeside 1.44 before.", "1.44"),
        (f"It takes {RUN} ms. Then it takes {RUN} ms, and launched by hand 14.4 ms.", "14.4 ms"),
        (f"A copy reaches {RATE} GB/s, and this kernel\n3,606 GB/s.", "3,606 GB/s"),
        (f"- one: {RUN} ms\n- the other reads 4,274 GB/s\n", "4,274 GB/s"),
        (f"A step takes {RUN} ms.\n\nElsewhere it says 1.496 ms.", "1.496 ms"),
        (f"A step takes {RUN} ms.\n\nElsewhere it says 4,239 GB/s.", "4,239 GB/s"),
    ],
)
def test_a_measured_number_that_is_typed_is_found(text, number):
    [fault] = typed_numbers(text)
    assert number in fault


@pytest.mark.parametrize(
    "text",
    [
        f"| rows | ms |\n|---|---|\n| 1 | {RUN} |\n| 8 | |\n| 16 | not measured |\n",
        f"| rows | steps | ms |\n|---|---|---|\n| 1 | 12 | {RUN} |\n| 8 | 13 | {RUN} |\n",
        f"| | ms |\n|---|---|\n| A | {RUN} |\n| all | 3.5 |\n",
        f"At {CEILING} GB/s the 15 GB take 3.5 ms, and half of them 1.8 ms.",
        f"A step takes {RUN} ms, so four take 4 · 1.5 = 6.0 ms.",
        f"A step takes {RUN} ms, and its bytes need at least 0.31 ms.",
        f"A step takes {RUN} ms with 325 kernels and 64 requests.",
        f"A step takes {RUN} ms in $3.5$ ms, `14.4 ms` and [one](page.md#at-14.4 ms).",
        f"A step takes {RUN} ms.\n\nA row of 1,044 and one of 1,312 bytes; 1,500 ms; 12.34 GB/s.",
        f"A step takes {RUN} ms.\n\n```text\n1.496 ms\n```\n",
        "A step takes 1.50 ms in place of 1.44, on a page that asks for nothing. 4,274 GB/s.",
    ],
)
def test_arithmetic_and_what_was_not_measured_is_typed(text):
    assert list(typed_numbers(text)) == []


def test_the_command_names_page_and_number(tmp_path, monkeypatch, capsys):
    (tmp_path / "labs").mkdir()
    (tmp_path / "labs/one.md").write_text(f"A step takes {RUN} ms in place of 1.44.")
    monkeypatch.setattr(typed, "SOURCES", tmp_path)
    monkeypatch.setattr(typed, "faults", lambda: faults(tmp_path))
    assert main() == 1
    said = capsys.readouterr().out
    assert said.startswith("labs/one.md: compared with a figure that is asked for: 1.44")


def test_the_book_types_none(monkeypatch):
    monkeypatch.undo()
    evidence.load.cache_clear()
    assert faults() == []
