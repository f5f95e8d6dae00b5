"""Random calls: some prompts, some siblings of each, and the outputs of all of them mingled."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from grader.kit.api import LENGTH, STOP, FakeRequest, make_request
from yaie.core.output import RequestOutput, Submitted

KINDS = ("ChatReply", "TextReply")
TEXTS = st.sampled_from(["a", "b ", "", "é", "\n"])
TOKENS = st.integers(1, 3)
REASONS = (STOP, LENGTH)
"""Of a request by its number."""


@dataclass(frozen=True, slots=True)
class CallScript:
    """steps: (request, text, tokens) in the order in which they come; ends: of each request the last.

    An output has several tokens where drafts were accepted, or where a slow reader found some merged.
    """

    requests: list[FakeRequest]
    n: int
    steps: list[tuple[int, str, int]]
    ends: list[tuple[int, str, int]]

    @property
    def submitted(self) -> list[Submitted]:
        return [request.submitted for request in self.requests]

    def outputs(self) -> list[RequestOutput]:
        """All outputs in order."""
        for request in self.requests:
            request.made = 0
        made = [self.requests[index].says(text, tokens=num) for index, text, num in self.steps]
        for index, text, num in self.ends:
            made.append(self.requests[index].says(text, REASONS[index % 2], tokens=num))
        return made

    def text(self, index: int) -> str:
        """The whole text of one request."""
        return "".join(text for number, text, _ in [*self.steps, *self.ends] if number == index)


@st.composite
def call_scripts(draw: st.DrawFn) -> CallScript:
    """Up to 3 prompts with up to 3 siblings each."""
    n = draw(st.integers(1, 3))
    requests = []
    for prompt in range(draw(st.integers(1, 3))):
        length = draw(st.integers(1, 9))
        for sibling in range(n):
            cached = draw(st.integers(0, length - 1))
            stop_reason = draw(st.sampled_from([None, "END", 7]))
            requests.append(
                make_request(
                    f"{prompt}.{sibling}",
                    prompt=length,
                    cached=cached,
                    stop_reason=stop_reason,
                    n=n,
                    index=sibling,
                )
            )
    numbers = st.integers(0, len(requests) - 1)
    steps = draw(st.lists(st.tuples(numbers, TEXTS, TOKENS), max_size=8))
    order = draw(st.permutations(range(len(requests))))
    ends = [(index, draw(TEXTS), draw(TOKENS)) for index in order]
    return CallScript(requests, n, steps, ends)


def counted(requests: Sequence[FakeRequest], n: int) -> dict[str, Any]:
    """Usage, request by request, of calls with `n` siblings for each prompt."""
    prompt = cached = completion = 0
    for number, request in enumerate(requests):
        completion += request.made
        if number % n == 0:
            prompt += request.submitted.num_prompt_tokens
            cached += request.cached
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
