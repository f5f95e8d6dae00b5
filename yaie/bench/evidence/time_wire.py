"""What request A costs on the wire, whole and streamed, for chapter "The HTTP API".

    python -m yaie.bench.evidence.time_wire

The tutor behind the reference's API, without a network. Times are medians. A reader who is slower than
the engine finds tokens merged: on a busy machine pieces and bytes are fewer.
"""

import gzip
import json
import statistics
from typing import Any

from yaie.bench.evidence import EVIDENCE, four
from yaie.bench.report import save
from yaie.engine.llm_engine import LLMEngine
from yaie.explore.wire import Client
from yaie.parts import load_parts

OUT = EVIDENCE / "time_wire.json"
CHAT = "/v1/chat/completions"
REPEATS = 7


def main() -> None:
    client = Client(load_parts("none")["api_server"], LLMEngine(mine="none", prefix_caching=False))
    client.start()
    body = {"messages": four.messages("A"), "temperature": 0}
    whole = _measure(client, body)
    streamed = _measure(client, body | {"stream": True})
    text = json.loads(client.post(CHAT, body).body)["choices"][0]["message"]["content"]
    left = _left(client, body)
    client.stop()
    save(
        str(OUT),
        {
            "command": "python -m yaie.bench.evidence.time_wire",
            "workload": f"request A, medians of {REPEATS}, no prefix caching",
            "text_bytes": len(text.encode()),
            "whole": whole,
            "streamed": streamed,
            "left": left,
        },
    )


def _measure(client: Client, body: dict[str, Any]) -> dict[str, float]:
    answers = [client.post(CHAT, body) for _ in range(REPEATS + 1)][1:]  # the first one warms up
    result = {
        "bytes": len(answers[0].body),
        "gzip_bytes": len(gzip.compress(answers[0].body)),
        "pieces": len(answers[0].pieces),
        "first_ms": statistics.median(answer.pieces[0][0] for answer in answers),
        "last_ms": statistics.median(answer.pieces[-1][0] for answer in answers),
    }
    print(result, flush=True)
    return result


def _left(client: Client, body: dict[str, Any]) -> dict[str, int]:
    """Tokens that are generated for a client who wanted 200 and hangs up after three pieces."""
    long = body | {"stream": True, "max_tokens": 200, "ignore_eos": True}
    before = client.stats()["generation_tokens"]
    client.post(CHAT, long, leave_after=3)
    client.post(CHAT, body | {"max_tokens": 1})  # admitted after what came before was obeyed
    made = int(client.stats()["generation_tokens"] - before) - 1
    print({"left": made}, flush=True)
    return {"asked": 200, "generated": made}


if __name__ == "__main__":
    main()
