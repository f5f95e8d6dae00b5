"""The process of a peer: see `yaie.bench.peers`."""

import json
import os
import sys
import time
from pathlib import Path
from typing import TextIO

from yaie.bench.peers.engines import ENGINES


def main(name: str, job_file: str, requests: TextIO, answers: TextIO) -> None:
    """Load the engine, say so, and carry out the runs that are asked for until the input ends: a number
    a line, followed by WARM if nothing is to be forgotten before it."""
    job = json.loads(Path(job_file).read_text("utf-8"))
    engine = ENGINES[name](job["settings"])
    _answer(answers, {"version": engine.version})
    for line in requests:
        number, *warm = line.split()
        if not warm:
            engine.forget()
        begin = time.perf_counter()
        lengths = engine.run(**job["runs"][int(number)])
        _answer(answers, {"seconds": time.perf_counter() - begin, "lengths": lengths})
    engine.close()


def _answer(answers: TextIO, message: object) -> None:
    answers.write(json.dumps(message) + "\n")
    answers.flush()


if __name__ == "__main__":
    # Engines print as they like. What they write goes to stderr, and answers have stdout to themselves.
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    main(sys.argv[1], sys.argv[2], sys.stdin, kept)
