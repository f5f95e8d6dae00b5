"""Task 8.5: what a long wait costs, and how many messages may come in it."""

import asyncio
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from starlette.requests import ClientDisconnect

from grader.kit import expect, expect_equal, expect_raises, note, task
from grader.kit.api import Wire
from grader.kit.waiting import run, settle, until, within
from grader.suites.api_server.test_leaving import Talkative, Work, begin

MESSAGES = 1001
NO_TIMER = (
    "The work and the message wake it by themselves. A timer that comes again and again costs something "
    "for every client that waits; one that runs out ends an answer that is only slow."
)


def timers_of(part: ModuleType) -> list[float]:
    """The delays, in seconds, of the timers that the part's files set on the running loop from now."""
    loop: Any = asyncio.get_running_loop()
    files, set_before, delays = str(Path(str(part.__file__)).parent), loop.call_at, []

    def call_at(when: float, *arguments: Any, **options: Any) -> Any:
        frame = sys._getframe(1)
        while frame is not None and not frame.f_code.co_filename.startswith(files):
            frame = frame.f_back  # type: ignore[assignment]
        if frame is not None:
            delays.append(when - loop.time())
        return set_before(when, *arguments, **options)

    loop.call_at = call_at
    return delays


@task("8.5")
def test_a_wait_sets_no_timer(part: ModuleType) -> None:
    """until_disconnect waits for work and client alone: it looks at no clock."""

    async def test() -> None:
        delays = timers_of(part)
        wire, work = Wire(), Work()
        waiting = begin(part, wire, work.run())
        await settle()
        problem = f"until_disconnect sets a timer of {round(max(delays, default=0), 2):g} seconds"
        expect(not delays, problem, why=NO_TIMER)
        expect_equal(work.state, "running", "the work, while until_disconnect waits for it")
        work.finish.set()
        result = await within(waiting, "until_disconnect, whose work ended")
        expect_equal(result, "result", "what until_disconnect returns")
        problem = f"until_disconnect sets a timer of {round(max(delays, default=0), 2):g} seconds"
        expect(not delays, f"{problem} at its end", why=NO_TIMER)

    run(test())


@task("8.5")
def test_any_number_of_messages_may_come(part: ModuleType) -> None:
    """However many messages of other types come, the client has not left."""

    async def test() -> None:
        wire, work = Talkative(MESSAGES), Work()
        waiting = begin(part, wire, work.run())
        note(f"# {MESSAGES} messages of the type http.request come")
        await until(lambda: waiting.done() or wire.waiting, f"the end of {MESSAGES} messages")
        why = (
            "A body comes in any number of messages. Only http.disconnect says that a client left."
        )
        problem = f"it ended in the course of {MESSAGES} messages that were no disconnect"
        expect(not waiting.done(), problem, why=why)
        wire.hang_up()
        with expect_raises(ClientDisconnect, "until_disconnect when the client leaves", why=why):
            await within(waiting, f"ClientDisconnect after {MESSAGES} other messages")

    run(test())
