"""What text costs as it comes, for chapter "The engine".

    python -m yaie.bench.evidence.time_detokenizer

A long text of the tutor's tokens goes through the Detokenizer, and through its naive sibling, which
decodes the whole output again for each token. Decoded tokens are counted; times are medians.
"""

import statistics
import time
from collections.abc import Callable

from yaie.bench.evidence import EVIDENCE, four
from yaie.bench.report import save
from yaie.engine.llm_engine import LLMEngine
from yaie.parts import load_parts

OUT = EVIDENCE / "time_detokenizer.json"
LENGTHS = (100, 500, 2000)
REPEATS = 5
Decode = Callable[[list[int]], str]


class Again:
    """The naive sibling: decode everything, show what was not shown yet."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._shown = 0

    def push(self, token_id: int) -> str:
        self._ids.append(token_id)
        text = self._decode(self._ids)
        new, self._shown = text[self._shown :], len(text)
        return new


def main() -> None:
    engine = LLMEngine(mine="none")
    text = " ".join([*four.QUESTIONS.values(), four.SYSTEM])
    ids = engine.tokenizer.encode(text)
    part = load_parts("none")["engine"]
    lengths = {}
    for length in LENGTHS:
        tokens = (ids * (length // len(ids) + 1))[:length]
        lengths[str(length)] = {
            "window": _measure(part.Detokenizer, engine.tokenizer.decode, tokens),
            "again": _measure(Again, engine.tokenizer.decode, tokens),
        }
        print(length, lengths[str(length)], flush=True)
    save(
        str(OUT),
        {
            "command": "python -m yaie.bench.evidence.time_detokenizer",
            "workload": f"the tutor's tokenizer; medians of {REPEATS} runs",
            "lengths": lengths,
        },
    )


def _measure(
    make: Callable[[Decode], object], decode: Decode, tokens: list[int]
) -> dict[str, float]:
    """decoded: tokens handed to the tokenizer, for each token that came. microseconds: for each."""
    count = 0

    def counted(ids: list[int]) -> str:
        nonlocal count
        count += len(ids)
        return decode(ids)

    seconds = []
    for repeat in range(REPEATS + 1):
        maker = make(counted if repeat == 0 else decode)
        begin = time.perf_counter()
        for token in tokens:
            maker.push(token)  # type: ignore[attr-defined]
        seconds.append(time.perf_counter() - begin)
    per_token = 1e6 * statistics.median(seconds[1:]) / len(tokens)
    return {"decoded": count / len(tokens), "microseconds": per_token}


if __name__ == "__main__":
    main()
