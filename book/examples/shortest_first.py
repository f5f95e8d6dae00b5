"""A scheduling policy of one's own, run without a model beside first come, first served.

Run: python book/examples/shortest_first.py
"""

import heapq

from yaie.core.contracts import KVCacheManager
from yaie.core.request import Request
from yaie.explore.timeline import Job, Step, play
from yaie.parts import load_parts


# ANCHOR: policy
class ShortestFirst:
    """The fewest prompt tokens first, equals by arrival: good for the mean wait, hard on the long."""

    def __init__(self, cache: KVCacheManager) -> None:
        self._heap: list[tuple[tuple[int, ...], Request]] = []
        self._waiting: set[Request] = set()

    def rank(self, request: Request) -> tuple[int, ...]:
        return request.num_prompt_tokens, request.arrival

    def push(self, request: Request) -> None:
        self._waiting.add(request)
        heapq.heappush(self._heap, (self.rank(request), request))

    def push_front(self, request: Request) -> None:
        self.push(request)  # its rank has not changed, and it was first among its equals

    def peek(self) -> Request | None:
        while self._heap and self._heap[0][1] not in self._waiting:
            heapq.heappop(self._heap)  # left the queue in the meantime
        return self._heap[0][1] if self._heap else None

    def remove(self, request: Request) -> None:
        self._waiting.remove(request)

    def __len__(self) -> int:
        return len(self._waiting)


# ANCHOR_END: policy

JOBS = [Job("long", 40, 4), Job("short", 4, 4), Job("middle", 12, 4)]
"""Name, prompt tokens, output tokens; all arrive before the first step."""


# ANCHOR: run
def run(policy: type) -> list[Step]:
    """The steps that JOBS take on a small pool, two at a time and 16 tokens a step."""
    parts = load_parts("none")
    memory = parts["paged_cache"]
    blocks = memory.BlockManager(num_blocks=32, block_size=4)
    cache = memory.KVCacheManager(blocks, parts["radix_tree"].RadixTree(block_size=4))
    scheduler = parts["scheduler"].Scheduler(cache, policy(cache), max_num_seqs=2, token_budget=16)
    return play(scheduler, cache, JOBS)


# ANCHOR_END: run


def main() -> None:
    policies = {"first come": load_parts("none")["scheduler"].POLICIES["fcfs"]}
    for name, policy in {**policies, "shortest first": ShortestFirst}.items():
        steps = run(policy)
        # The step before the first that only goes on had the prompt's last token, and drew.
        drawn = {job.name: next(n for n, step in enumerate(steps) if job.name in step.output)
                 for job in JOBS}  # fmt: skip
        print(f"{name + ':':<15} first tokens after steps {drawn}, {len(steps)} steps in all")


if __name__ == "__main__":
    main()
