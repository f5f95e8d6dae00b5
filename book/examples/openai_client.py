"""The openai package against `yaie serve`: a whole answer, a stream, an error, a stream that is left.

Run: python book/examples/openai_client.py http://127.0.0.1:8000/v1
"""

import sys
from itertools import islice
from typing import Any

from openai import BadRequestError, OpenAI

from yaie.bench.evidence import four


def chat(name: str) -> Any:
    """The messages of one of the book's four requests."""
    return four.messages(name)


def main(url: str) -> None:
    client = OpenAI(base_url=url, api_key="none", max_retries=0)
    whole(client)
    streamed(client)
    refused(client)
    left(client)


# ANCHOR: whole
def whole(client: OpenAI) -> None:
    """Request A, in one piece."""
    answer = client.chat.completions.create(model="tutor", messages=chat("A"), temperature=0)
    assert answer.usage is not None
    print("whole:", answer.choices[0].message.content)
    print("      ", answer.choices[0].finish_reason, answer.usage.total_tokens, "tokens")


# ANCHOR_END: whole


# ANCHOR: streamed
def streamed(client: OpenAI) -> None:
    """Request B, as it comes, with the counts at the end."""
    chunks = client.chat.completions.create(
        model="tutor",
        messages=chat("B"),
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    pieces = []
    for chunk in chunks:
        if chunk.choices:
            pieces.append(chunk.choices[0].delta.content or "")
        elif chunk.usage is not None:
            details = chunk.usage.prompt_tokens_details
            assert details is not None
            cached, prompt = details.cached_tokens, chunk.usage.prompt_tokens
    print("streamed:", "|".join(pieces[:9]), "...")
    print("         ", len(pieces), "chunks;", cached, "of", prompt, "prompt tokens were cached")


# ANCHOR_END: streamed


# ANCHOR: refused
def refused(client: OpenAI) -> None:
    """What a program learns from an error: not only that, but where."""
    try:
        client.chat.completions.create(model="tutor", messages=chat("C"), top_p=3)
    except BadRequestError as error:
        print("refused:", error.status_code, error.code, error.param)


# ANCHOR_END: refused


# ANCHOR: left
def left(client: OpenAI) -> None:
    """Request D, left after five chunks: the `with` closes the connection."""
    with client.chat.completions.create(
        model="tutor",
        messages=chat("D"),
        temperature=0,
        stream=True,
        extra_body={"ignore_eos": True},  # an extension: parameters that the package does not know
    ) as chunks:
        pieces = [chunk.choices[0].delta.content or "" for chunk in islice(chunks, 5)]
    print("left:", "".join(pieces), "...")


# ANCHOR_END: left


if __name__ == "__main__":
    main(sys.argv[1])
