"""The table of transformers' families, from what `yaie.bench.evidence.families` tried."""

from collections import defaultdict
from typing import Any

from book.tools.evidence import EvidenceError, load

SERVED = {
    "own": "served by an adapter of ours",
    "generic": "served by the generic adapter",
    "half own": "text half, by an adapter of ours",
    "half generic": "text half, by the generic adapter",
}
REASONS = {
    "encoder-decoder": "encoder-decoders",
    "keep a state": "layers that keep a state",
    "compressed keys": "keys that are compressed or chosen",
    "by an indexer": "keys that are compressed or chosen",
    "computed in its own way": "attention of their own, such as ALiBi",
    "not causal": "a prompt's tokens see those after them",
}
OTHER = "refused for another reason"
UNTRIED = "no small model of them could be made, or transformers does not run it on text alone"


def render_families() -> str:
    """How many are served each way, or not, and why; and, folded, which. Raises EvidenceError."""
    rows: dict[str, list[str]] = defaultdict(list)
    for name, verdict in load("families")["families"].items():
        rows[_row(name, verdict)].append(name)
    order = [*SERVED.values(), *dict.fromkeys(REASONS.values()), OTHER, UNTRIED]
    found = [row for row in order if rows[row]]
    short = ["| | families |", "|---|---:|", *(f"| {row} | {len(rows[row])} |" for row in found)]
    names = ["| | by transformers' `model_type` |", "|---|---|"]
    names += [f"| {row} | {', '.join(f'`{one}`' for one in sorted(rows[row]))} |" for row in found]
    listed = ["<details><summary>All of them, by name</summary>", "", *names, "", "</details>"]
    return "\n".join([*short, "", *listed])


def _row(name: str, verdict: dict[str, Any]) -> str:
    kind = verdict["is"]
    if kind in SERVED:
        return SERVED[kind]
    if kind == "untried":
        return UNTRIED
    if kind != "refused":
        raise EvidenceError(f"{{{{#families}}}}: {name} {kind}: {verdict.get('why')}")
    return next((row for words, row in REASONS.items() if words in verdict["why"]), OTHER)
