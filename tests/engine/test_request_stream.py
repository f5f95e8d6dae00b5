"""What a stream keeps for a reader slower than the engine, and what a fast one leaves to others."""

import asyncio
import time
from typing import Any

from yaie.core.logprobs import TokenLogprob
from yaie.core.output import RequestOutput
from yaie.engine.background.streams import MOST_ENTRIES, TURN, RequestStream

TOP = tuple((token, -1.0) for token in range(20))


def output(request_id: str = "a", *, logprobs: bool = False) -> RequestOutput:
    entries = [TokenLogprob(5, -1.0, TOP)] if logprobs else None
    return RequestOutput(request_id, "x", [5], logprobs=entries)


async def opened() -> RequestStream:
    stream = RequestStream(0, lambda _: None)
    stream.accept([])
    stream._unfinished = 2
    return stream


def test_what_piles_up_is_one_output_unless_it_has_many_log_probabilities() -> None:
    async def test() -> None:
        for logprobs in (False, True):
            stream = await opened()
            for _ in range(400):
                stream.put(output(logprobs=logprobs))
                stream.put(output("b"))
            taken: list[Any] = []
            while stream._pending:
                taken.append(await anext(stream))
            assert sum(len(one.token_ids) for one in taken if one.request_id == "a") == 400
            assert [one.request_id for one in taken[:2]] == ["a", "b"]
            sizes = [21 * len(one.logprobs) for one in taken if one.logprobs]
            assert len(taken) == 2 or logprobs
            assert all(MOST_ENTRIES <= size < MOST_ENTRIES + 21 for size in sizes[:-1])

    asyncio.run(test())


def test_merging_a_token_costs_no_more_however_many_wait() -> None:
    async def test() -> None:
        stream = await opened()
        for _ in range(5000):
            stream.put(output())
            assert len(stream._pending["a"][-1].token_ids) <= MOST_ENTRIES
        taken = [await anext(stream) for _ in range(len(stream._pending["a"]))]
        assert "".join(one.text for one in taken) == "x" * 5000
        assert sum(len(one.token_ids) for one in taken) == 5000

    asyncio.run(test())


def test_a_reader_that_is_always_busy_lets_others_run() -> None:
    async def test() -> None:
        stream = await opened()
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(other())
        for number in range(5):
            stream.put(output(str(number)))
        for _ in range(5):
            await anext(stream)
            time.sleep(2 * TURN)
        beside.cancel()
        assert turns >= 4

    asyncio.run(test())


def test_an_output_is_offered_elsewhere_only_while_the_reader_waits() -> None:
    async def test() -> None:
        stream = await opened()
        offered: list[str] = []
        taken: list[str] = []

        def take(one: RequestOutput) -> bool:
            offered.append(one.text)
            return one.text.islower()

        async def read() -> None:
            while True:
                taken.append((await anext(stream)).text)

        def put(text: str) -> None:
            stream.put(RequestOutput("a", text, [5]))

        async def turns() -> None:
            for _ in range(5):
                await asyncio.sleep(0)

        stream.divert(take)
        put("a")  # nobody waits for it yet
        reader = asyncio.create_task(read())
        await turns()
        put("b")
        put("C")  # not taken: the reader has a turn to come,
        put("d")  # and what comes before it stays behind
        await turns()
        put("e")
        assert offered == ["b", "C", "e"]
        assert taken == ["a", "Cd"]
        reader.cancel()
        put("f")  # its reader is about to go
        assert offered == ["b", "C", "e"]

    asyncio.run(test())
