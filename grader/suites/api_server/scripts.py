"""Random calls: some prompts, some siblings of each, and the outputs of all of them mingled."""

from dataclasses import dataclass

from hypothesis import strategies as st

from grader.kit.api import LENGTH, STOP, make_request, piece
from yaie.core.request import Request, RequestOutput

KINDS = ("ChatReply", "TextReply")
TEXTS = st.sampled_from(["a", "b ", "", "é", "\n"])


@dataclass(frozen=True, slots=True)
class CallScript:
    """steps: (request, text) in the order in which they come; ends: of each request the last text."""

    requests: list[Request]
    n: int
    steps: list[tuple[int, str]]
    ends: list[tuple[int, str]]

    def outputs(self) -> list[RequestOutput]:
        """All outputs in order. As with a real engine, the requests are ahead of their outputs."""
        for request in self.requests:
            del request.token_ids[request.num_prompt_tokens :]
        made = [piece(self.requests[index], text) for index, text in self.steps]
        for index, text in self.ends:
            reason = LENGTH if index % 2 else STOP
            made.append(piece(self.requests[index], text, reason))
        return made

    def text(self, request: Request) -> str:
        """The whole text of one request."""
        return "".join(
            text for index, text in [*self.steps, *self.ends] if self.requests[index] is request
        )

    def reason(self, request: Request) -> str:
        return "length" if self.requests.index(request) % 2 else "stop"


@st.composite
def call_scripts(draw: st.DrawFn) -> CallScript:
    """Up to 3 prompts with up to 3 siblings each."""
    n = draw(st.integers(1, 3))
    requests = []
    for prompt in range(draw(st.integers(1, 3))):
        length = draw(st.integers(1, 9))
        for sibling in range(n):
            cached = draw(st.integers(0, length - 1))
            requests.append(make_request(f"{prompt}.{sibling}", prompt=length, cached=cached, n=n))
    for request in requests:
        request.stop_reason = draw(st.sampled_from([None, "END", 7]))
    numbers = st.integers(0, len(requests) - 1)
    steps = draw(st.lists(st.tuples(numbers, TEXTS), max_size=8))
    order = draw(st.permutations(range(len(requests))))
    return CallScript(requests, n, steps, [(index, draw(TEXTS)) for index in order])
