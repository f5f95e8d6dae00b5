"""The four requests of the book, one after the other: blocks, hits and the tree they leave. Counts only.

python -m yaie.bench.evidence.memory_four
"""

from typing import Any

from yaie.bench.evidence import EVIDENCE, four
from yaie.bench.report import save
from yaie.core.params import SamplingParams
from yaie.core.request import Request
from yaie.engine.llm_engine import LLMEngine
from yaie.parts import load_parts

OUT = EVIDENCE / "memory_four.json"


def main() -> None:
    engine = LLMEngine(mine="none", num_blocks=64)
    done, figures = {}, {}
    for name in four.QUESTIONS:
        request = _answer(engine, name)
        stats = engine.stats()
        done[name] = request
        figures[name] = {
            "prompt": request.num_prompt_tokens,
            "answer": request.num_output_tokens,
            "cached": request.num_cached_tokens,
            "computed": request.num_computed_tokens,
            "cached_blocks_after": stats["cached_blocks"],
            "free_blocks_after": stats["free_blocks"],
        }
        print(name, figures[name], flush=True)
    record = {
        "command": "python -m yaie.bench.evidence.memory_four",
        "workload": "requests A to D one after the other, greedy, blocks of 16, a pool of 64 blocks",
        "requests": figures,
        "tree": _tree(done),
        "together": _together(),
    }
    print(record["tree"], record["together"])
    save(str(OUT), record)


def _answer(engine: LLMEngine, name: str) -> Request:
    params = SamplingParams(temperature=0, max_tokens=160)
    (request,) = engine.add_request(engine.encode_chat(four.messages(name)), params)
    while engine.has_work:
        engine.step()
        engine.check()
    return request


def _tree(done: dict[str, Request]) -> dict[str, Any]:
    """What the tree holds once each has been filed: whole blocks of computed tokens."""
    tree = load_parts("none")["radix_tree"].RadixTree(16)
    start, ends = 0, {}
    for name, request in done.items():
        count = request.num_computed_tokens // 16
        blocks = list(range(start, start + count))
        existing, ends[name] = tree.insert(request.token_ids, blocks)
        start += count
        ends[name] = (existing, count)
    tree.check()
    return {
        "blocks": tree.num_blocks,
        "without_sharing": start,
        "already_there": {name: existing for name, (existing, _) in ends.items()},
        "filed": {name: count for name, (_, count) in ends.items()},
    }


def _together() -> dict[str, Any]:
    """A to D added before the first step: who computes what in the first two steps."""
    engine = LLMEngine(mine="none", num_blocks=64)
    params = SamplingParams(temperature=0, max_tokens=160)
    requests = {
        name: engine.add_request(engine.encode_chat(four.messages(name)), params)[0]
        for name in four.QUESTIONS
    }
    steps = []
    for _ in range(2):
        before = {name: request.num_computed_tokens for name, request in requests.items()}
        engine.step()
        steps.append(
            {
                name: [request.num_computed_tokens - before[name], request.num_cached_tokens]
                for name, request in requests.items()
            }
        )
    return {"steps": steps, "used_blocks": engine.stats()["used_blocks"]}


if __name__ == "__main__":
    main()
