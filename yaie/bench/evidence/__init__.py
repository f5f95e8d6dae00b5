"""What the chapters quote, measured: `yaie.bench.evidence.NAME` writes `book/evidence/NAME.json`.

`yaie bench` measures the engine as its users have it, whoever wrote its parts. These modules measure
what a chapter says, mostly of the reference: its naive siblings, its tiles, one phase of its step. So
they import `solutions` by name. They are run in a checkout, which has the folder that they write to.
"""

from pathlib import Path

EVIDENCE = Path(__file__).parents[3] / "book/evidence"

__all__ = ["EVIDENCE"]
