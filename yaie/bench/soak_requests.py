"""What `yaie bench soak` asks, and what makes an answer a whole one."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from yaie.bench.http_client import Answer, Json

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ABORTED, BAD = 0.10, 0.05
QUESTIONS = (
    "What is a paged KV cache?",
    "What is a block table?",
    "What is a radix tree?",
    "What does the scheduler do?",
    "What is continuous batching?",
    "What is a prefill?",
    "Why is decoding slow?",
    "What is a sampler?",
)
SYSTEM = (
    "You answer questions about inference engines. You are brief. You name the part of the engine "
    "that does the work, and what it costs in memory and in time. You never guess. Reader {}."
)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request. kind: "good", "greedy" (its answer is known), "aborted" or "bad"."""

    kind: str
    path: str
    body: Any
    leave_after: float | None = None


def greedy() -> list[Ask]:
    """Requests whose answers do not depend on who else is served."""
    texts: list[tuple[str, Json]] = [
        (CHAT, {"messages": _messages(question)}) for question in QUESTIONS
    ]
    texts += [(TEXT, {"prompt": question}) for question in QUESTIONS]
    draw = {"temperature": 0, "max_tokens": 24}
    return [
        Ask("greedy", path, {**text, **draw, **({"stream": True} if i % 2 else {})})
        for i, (path, text) in enumerate(texts)
    ]


def filling(num_tokens: int, context: int) -> list[Ask]:
    """Prompts of so many tokens in all, no two of which begin alike."""
    lengths = [context - 2] * (num_tokens // (context - 2)) + [num_tokens % (context - 2)]
    return [
        Ask(
            "good",
            TEXT,
            {"prompt": [number % 90, number // 90, *[7] * (length - 2)], "max_tokens": 1},
        )
        for number, length in enumerate(lengths)
        if length > 2
    ]


def draw(count: int, context: int, seed: int = 0) -> list[Ask]:
    """Requests of every kind in random order, the same for the same seed.

    context: the model's, in tokens; some prompts are longer.
    """
    rng, known = random.Random(seed), greedy()
    return [_one(rng, known, context) for _ in range(count)]


def _one(rng: random.Random, known: Sequence[Ask], context: int) -> Ask:
    chance = rng.random()
    if chance < BAD:
        return _bad(rng, context)
    if chance < BAD + ABORTED:
        good = _good(rng)
        # Longer than the others: most are still under way when the client leaves.
        return Ask("aborted", good.path, good.body | {"max_tokens": 200}, rng.random() * 1.5)
    return rng.choice(known) if rng.random() < 0.15 else _good(rng)


def _good(rng: random.Random) -> Ask:
    body: Json = {
        "max_tokens": rng.choice((1, 4, 8, 16, 16, 32)),
        "temperature": rng.choice((0, 0.7, 1.2)),
    }
    options: list[Json] = [
        {},
        {},
        {"seed": rng.randrange(1000), "top_p": 0.9},
        {"n": rng.choice((2, 3)), "temperature": 1},
        {"stop": [".", "\n"]},
        {"presence_penalty": 0.5, "repetition_penalty": 1.1},
        {"ignore_eos": True, "top_k": 20},
        {"logit_bias": {"20": 5, "30": -100}},
    ]
    body |= rng.choice(options)
    if rng.random() < 0.5:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    if rng.random() < 0.5:
        return Ask("good", TEXT, _text(rng) | body)
    chat: Json = {"messages": _messages(rng.choice(QUESTIONS), rng.randrange(8))}
    if rng.random() < 0.1:
        chat |= {"logprobs": True, "top_logprobs": 3}
    elif rng.random() < 0.1:
        chat |= {"response_format": {"type": "json_object"}}
    return Ask("good", CHAT, chat | body)


def _text(rng: random.Random) -> Json:
    words = " ".join(rng.choice(QUESTIONS).split()[: rng.randint(1, 6)])
    prompts: list[Any] = [words, words, [words, "A block is"], [rng.randrange(16, 500)] * 40]
    text: Json = {"prompt": rng.choice(prompts)}
    return text | ({"logprobs": 2} if rng.random() < 0.1 else {})


def _messages(question: str, reader: int = 0) -> list[Json]:
    """Eight readers share their system prompts with one another's questions."""
    return [
        {"role": "system", "content": SYSTEM.format(reader)},
        {"role": "user", "content": question},
    ]


def _bad(rng: random.Random, context: int) -> Ask:
    bodies: list[Any] = [
        b'{"prompt": "x"',
        b"[" * 5000,
        {"prompt": "x", "max_tokens": -1},
        {"prompt": "x", "temperature": "hot"},
        {"prompt": "word " * (context + 1), "max_tokens": 1},
        {"prompt": "x", "n": 10**9},
        {"prompt": "x", "temprature": 1},
        {"prompt": "x", "model": "gpt-4"},
        {"prompt": [10**9]},
    ]
    return Ask("bad", TEXT, rng.choice(bodies))


def texts_of(ask: Ask, answer: Answer) -> list[str]:
    """The text of each choice of a good answer. Raises ValueError if it is not whole."""
    if answer.status != 200:
        raise ValueError(f"{ask.body}: {answer.status} {answer.body[:300]!r}")
    prompts = ask.body.get("prompt", "")
    several = isinstance(prompts, list) and not isinstance(prompts[0], int)
    count = ask.body.get("n", 1) * (len(prompts) if several else 1)
    choices = answer.events() if ask.body.get("stream") else [answer.json]
    texts, ends = [""] * count, [0] * count
    for choice in (choice for chunk in choices for choice in chunk["choices"]):
        part = choice.get("delta") or choice.get("message") or choice
        texts[choice["index"]] += part.get("content") or part.get("text") or ""
        ends[choice["index"]] += choice["finish_reason"] in ("stop", "length")
    if ends != [1] * count:
        raise ValueError(f"{ask.body}: the choices ended {ends} times")
    return texts


def num_tokens(ask: Ask, answer: Answer) -> int:
    """How many tokens the answer says it has; 0 for a stream without usage."""
    if not ask.body.get("stream"):
        return int(answer.json["usage"]["completion_tokens"])
    usage = answer.events()[-1].get("usage")
    return int(usage["completion_tokens"]) if usage else 0
