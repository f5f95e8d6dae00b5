"""Parts of another design beside the reference's, for the figure `ladder`.

What `yaie bench ladder` measured is in book/evidence/ladder.json. Processor time is compared: runs have
one thread, and other programs of the machine change it little. No part takes part in this trace.
"""

from book.tools.evidence import load
from book.tools.traces import Part, Trace

LAB = None
DIGITS = 3


def record(part: Part) -> Trace:
    """designs: by lab. rungs: name, the labs that are replaced, and of each round the reference's
    processor time over the rung's; same: whether its tokens are the reference's."""
    evidence = load("ladder")
    reference = evidence["rungs"]["reference"]["cpu_seconds"]
    return {
        "designs": evidence["designs"],
        "rungs": [
            {
                "name": name,
                "mine": rung["mine"].split(","),
                "ratio": [
                    round(theirs / ours, DIGITS)
                    for theirs, ours in zip(reference, rung["cpu_seconds"], strict=True)
                ],
                "same": not rung["differing"],
            }
            for name, rung in evidence["rungs"].items()
        ],
    }
