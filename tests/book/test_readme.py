"""The README's figures are those that the book prints from the recorded evidence."""

import pytest

from book.tools.evidence import value
from book.tools.mdbook import ROOT

README = (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize(
    ("row", "figures"),
    [
        (
            "throughput against transformers' best static batch",
            [("throughput:ratio.values." + key, ".1f") for key in ("median", "low", "high")],
        ),
        ("geometric outputs", [("continuous_geometric:ratio.values.median", ".2f")]),
        (
            "uniform outputs",
            [
                ("continuous_uniform:ratio.values.median", ".2f"),
                ("continuous_uniform_384:ratio.values.median", ".2f"),
            ],
        ),
        (
            "allocated KV slots",
            [("memory:shares.paged", ".1%"), ("memory:shares.whole context", ".1%")],
        ),
        (
            "time to first token with a shared prefix",
            [(f"prefix:ratio.{key}", ".0f") for key in ("median", "low", "high")],
        ),
        ("at 256 running requests", [("bookkeeping:cases.16.ms.median", ".1f")]),
    ],
)
def test_a_row_of_the_table_is_what_was_recorded(row, figures):
    [line] = [line for line in README.splitlines() if line.startswith("|") and row in line]
    missing = [text for address, form in figures if (text := value(address, form)) not in line]
    assert missing == [], line
