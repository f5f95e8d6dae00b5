"""What the chapters quote, measured: `yaie.bench.evidence.NAME` writes `book/evidence/NAME.json`.

`yaie bench` measures the whole engine, with anybody's parts. A chapter also quotes pieces of the
reference: a naive sibling, a tile, one phase of a step. That is why these modules import `solutions` by
name. They need a checkout, because they write into its `book` folder.
"""

from pathlib import Path

EVIDENCE = Path(__file__).parents[3] / "book/evidence"

__all__ = ["EVIDENCE"]
