"""What the messages of a run tell: who sent more than it had to, and in which piece."""

import re

from grader.kit.expect import Mismatch
from grader.kit.script import current_script

SENDS = re.compile(r"rank (\d+) sends (\d+) numbers? ?(?:of (\w+) )?to rank")
CHUNKS = (
    "A rank that sends every chunk but one sends (size - 1) / size of the tensor; no number needs to be "
    "sent twice."
)
OVERLAP = "The chunks of all ranks are the tensor once: no number is in two of them."
TWO_ROUNDS = (
    "An all_reduce of chunks sends 2 * (size - 1) / size of the tensor. What is sent as a whole is sent "
    "size - 1 times."
)


def expect_few_bytes(
    sent: list[int], most: int, what: str, largest: int, times: int, why: str = CHUNKS
) -> None:
    """That no rank has sent more bytes than this. largest: numbers of the largest piece that is right to
    send. times: how often a rank sends one."""
    if max(sent) <= most:
        return
    rank = sent.index(max(sent))
    sizes = [int(found[2]) for line in current_script().lines
             if (found := SENDS.match(line)) and int(found[1]) == rank]  # fmt: skip
    is_chunk = largest < max(sizes, default=0) < 2 * largest
    told = f"{what}: {max(sent)} bytes sent by a rank, where {most} are enough"
    if sizes and max(sizes) > largest:
        told += f". Rank {rank} sends {max(sizes)} numbers at once; a chunk has at most {largest}"
    elif len(sizes) > times:
        enough = "once is" if times == 1 else f"{times} are"
        told += f". Rank {rank} sends {len(sizes)} times, where {enough} enough"
    raise Mismatch(told, why=OVERLAP if is_chunk else why)
