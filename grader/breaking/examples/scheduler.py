from typing import Any

from yaie.core.params import SamplingParams
from yaie.core.request import Request


def request(arrival: int, priority: int = 0) -> Request:
    return Request(
        f"r{arrival}", [1], SamplingParams(), arrival=arrival, priority=priority, max_tokens=1
    )


def attack_three_priorities(part: Any) -> Any:
    """The smallest priority goes first; of equals, the one that arrived first."""
    queue, order = part.policies.Priority(None), []
    for arrival, priority in ((1, 5), (2, 0), (3, 5)):
        queue.push(request(arrival, priority))
    while (first := queue.peek()) is not None:
        order.append(first.request_id)
        queue.remove(first)
    return order
