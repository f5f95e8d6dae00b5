"""What parts of another design are worth beside the reference's, for the evidence page.

    python -m book.tools.ladder [FILE]

A copy of the repository has, as a learner's parts, right designs that differ from the reference: those
of grader/known_right. There `yaie bench ladder` runs the same requests on the reference, on each of
these parts alone and on all of them, in turn, REPEATS times. The one other design of lab 2 attends key
by key, in Python, and would take the night. On a busy machine only processor time says something.
"""

import json
import shutil
import subprocess
import sys

from book.tools.evidence import EVIDENCE
from book.tools.mdbook import ROOT
from book.tools.sandbox import Sandbox
from yaie.bench.report import save

OUT = EVIDENCE / "ladder.json"
DESIGNS = {
    "sampler": "one_sort",
    "paged_cache": "ledger",
    "radix_tree": "chained_blocks",
    "radix_attention": "one_sequence_at_a_time",
    "scheduler": "by_hand",
    "engine": "automaton",
}
REPEATS = 5
WORKLOAD = "--requests 64 --prompt-tokens 32-128 --output-tokens 32-96 --threads 1".split()


def main() -> None:
    with Sandbox(ROOT) as sandbox:
        for lab, design in DESIGNS.items():
            sandbox.solve(lab)
            shutil.copytree(
                ROOT / "grader/known_right" / lab / design,
                sandbox.copy / "labs" / lab,
                dirs_exist_ok=True,
            )
        found = sandbox.home / "ladder.json"
        words = ["yaie", "bench", "ladder", "--mine", ",".join(DESIGNS), *WORKLOAD]
        words += ["--repeats", str(REPEATS), "--json", str(found)]
        subprocess.run(words, cwd=sandbox.copy, env=sandbox.environment(), check=True)
        figures = json.loads(found.read_text("utf-8"))
    shown = {name: figures[name] for name in ("workload", "rungs")}
    command = {"command": "python -m book.tools.ladder", "designs": DESIGNS, "repeats": REPEATS}
    save(sys.argv[1] if len(sys.argv) > 1 else str(OUT), {**command, **shown})


if __name__ == "__main__":
    main()
