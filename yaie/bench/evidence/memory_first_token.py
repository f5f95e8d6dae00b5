"""Time to first token with a shared prompt of several lengths, for chapter "Radix attention".

    python -m yaie.bench.evidence.memory_first_token

As `yaie bench prefix` measures it, with the median of each written out.
"""

import json
import statistics
import tempfile
from pathlib import Path

from yaie.bench.evidence import EVIDENCE
from yaie.bench.prefix import run
from yaie.bench.report import save
from yaie.core.config import EngineConfig

OUT = EVIDENCE / "memory_first_token.json"
SHARED, OWN, REPEATS = [32, 125, 250, 500, 1000, 1900], 24, 7


def main() -> None:
    config = EngineConfig(mine="none", kv_memory_share=0.05)
    lengths = {}
    for shared in SHARED:
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            run(config, shared, OWN, REPEATS, file.name)
            found = json.loads(Path(file.name).read_text("utf-8"))
        times = {name: statistics.median(ms) for name, ms in found["first_token_ms"].items()}
        lengths[str(shared)] = {
            "computed_ms": times["computed"],
            "cached_ms": times["cached"],
            "off_ms": times["cache off"],
            "ratio": statistics.median(found["ratio"]),
            "cached_tokens": shared // config.block_size * config.block_size,
        }
    note = f"prefixes of {SHARED} tokens and {OWN} of one's own; medians of {REPEATS}"
    command = "python -m yaie.bench.evidence.memory_first_token"
    save(str(OUT), {"command": command, "workload": note, "shared": lengths})


if __name__ == "__main__":
    main()
