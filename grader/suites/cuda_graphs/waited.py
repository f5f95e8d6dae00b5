"""Why the host had to wait for the device, and in which line of the part."""

import sys
from dataclasses import dataclass
from types import FrameType

from grader.kit.expect import Fault

NOT_PINNED = "copies from or to memory that is not pinned"
NOT_QUEUED = "copies without non_blocking=True"
WAITS_OF_COPIES = (
    "A copy from pinned memory with non_blocking=True is queued like a kernel. Any other waits for the "
    "device: then the next step cannot be sent while this one runs."
)
WAITS_OF_READS = (
    "The host can look at a value of the device only when all is done that was queued before. Let it "
    "stay there: then the next step can be sent while this one runs."
)
Line = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Wait:
    """One wait of the host. what: it did. line: of the part, innermost; None outside of it."""

    what: str
    line: Line | None


def wait_for(what: str) -> Wait:
    """A wait that happens now."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("labs."):
            return Wait(what, (frame.f_code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return Wait(what, None)


def expect_no_wait(waits: list[Wait], when: str, why: str = "") -> None:
    """The host has not waited. when: "in a replay". why: in place of what the first wait tells."""
    if not waits:
        return
    first = waits[0]
    is_copy = first.what in (NOT_PINNED, NOT_QUEUED)
    times = "once" if len(waits) == 1 else f"{len(waits)} times"
    raise Fault(
        f"the host waits for the device {times} {when}: it {first.what}",
        why=why or (WAITS_OF_COPIES if is_copy else WAITS_OF_READS),
        line=first.line,
    )
