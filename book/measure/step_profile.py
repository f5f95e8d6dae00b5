"""What a profile of the tutor's decode step shows, for chapter "Profiling a whole step".

    python -m book.measure.step_profile

The chapter prints it word for word. Of RUNS runs the fastest gives the time and the medians give the
shares, so other programs of the machine disturb them least.
"""

from pathlib import Path
from statistics import median
from typing import Any

from book.examples.step_profile import lines, measure
from yaie.bench.report import save

OUT = Path(__file__).parents[1] / "evidence/step_profile.json"
RUNS = 5
KEPT = 12


def main() -> None:
    figures = joined([measure() for _ in range(RUNS)])
    print("\n".join(lines(figures)))
    save(str(OUT), {"command": "python -m book.measure.step_profile", "runs": RUNS, **figures})


def joined(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Several results of `measure` as one, with KEPT operators that all of them have."""
    found = [{operator["name"]: operator for operator in run["operators"]} for run in runs]
    operators = [
        {**found[0][name], "share": median(run[name]["share"] for run in found)}
        for name in found[0]
        if all(name in run for run in found)
    ]
    operators.sort(key=lambda operator: -operator["share"])
    return {
        "workload": runs[0]["workload"],
        "step_ms": min(run["step_ms"] for run in runs),
        "operators": operators[:KEPT],
    }


if __name__ == "__main__":
    main()
