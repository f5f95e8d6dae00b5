"""What is held of bodies: it is given back when they are read, and small ones pass beside large ones."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from solutions.api_server import http_error
from yaie.engine.background.rejections import no_rejections
from yaie.server import held_bodies, request_body
from yaie.server.held_bodies import BODIES_AT_ONCE, KEPT_AT_ONCE, LARGE, SMALL
from yaie.server.json_limits import MAX_DEPTH, MAX_NAMES, MAX_VALUES
from yaie.server.request_body import GIVE_BACK, BodyLimit

MAX_BYTES = 2 * LARGE
App = Callable[[Any, Any, Any], Awaitable[None]]


class Client:
    """Sends a request's body in pieces, each when it is told to, and notes the answer's status."""

    def __init__(
        self, limit: BodyLimit, size: int, path: str = "/v1/completions", *, announced: bool = False
    ) -> None:
        self.status = 0
        self._size = size
        self._pieces: asyncio.Queue[Any] = asyncio.Queue()
        headers = [(b"content-length", b"%d" % size)] * announced
        self.scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
        self.task = asyncio.create_task(limit(self.scope, self._pieces.get, self._send))

    async def _send(self, message: Any) -> None:
        self.status = message.get("status", self.status)

    async def send(self, size: int | None = None, content: bytes | None = None) -> None:
        """So many bytes of it, or all that are left. content: blanks, if it is not given."""
        size = self._size if size is None else size
        self._size -= size
        message = {
            "type": "http.request",
            "body": content or b" " * size,
            "more_body": self._size > 0,
        }
        self._pieces.put_nowait(message)
        del message
        for _ in range(5):  # the server has its turn
            await asyncio.sleep(0)

    async def answered(self) -> int:
        """The status of the answer."""
        await asyncio.wait_for(self.task, 20)
        return self.status


class Held:
    """An application that holds each request until `go` is set. begun: how many it has."""

    def __init__(self, *, gives_back: bool = True) -> None:
        self.begun = 0
        self.go = asyncio.Event()
        self._gives_back = gives_back

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await receive()
        if self._gives_back:
            scope[GIVE_BACK]()
        self.begun += 1
        await self.go.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})


def run(test: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_bodies, "LARGE_BYTES_A_SECOND", 1e12)
    asyncio.run(asyncio.wait_for(test(), 60))  # type: ignore[arg-type]


def body_limit(app: App, **options: Any) -> BodyLimit:
    settings = {"max_bytes": MAX_BYTES, "seconds": 60.0, **options}
    return BodyLimit(app, http_error, rejections=no_rejections(), **settings)


def test_small_and_medium_bodies_pass_beside_large_ones_that_do_not_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        app = Held()
        app.go.set()
        limit = body_limit(app)
        slow = [Client(limit, MAX_BYTES) for _ in range(BODIES_AT_ONCE)]
        for client in slow:
            await client.send(MAX_BYTES - 1)
        large = Client(limit, LARGE + 9)
        await large.send()
        assert await large.answered() == 503
        for size in (10, SMALL, SMALL + 1, LARGE):
            other = Client(limit, size)
            await other.send()
            assert await other.answered() == 200, size
        await slow[0].send()  # one of them is there at last, and given back
        assert await slow[0].answered() == 200
        large = Client(limit, LARGE + 9)
        await large.send()
        assert await large.answered() == 200
        for client in slow[1:]:
            client.task.cancel()

    run(test, monkeypatch)


def test_small_bodies_pass_beside_medium_ones_that_do_not_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        app = Held()
        app.go.set()
        limit = body_limit(app)
        slow = [Client(limit, LARGE) for _ in range(BODIES_AT_ONCE * MAX_BYTES // LARGE + 1)]
        for client in slow:
            await client.send(LARGE - 1)
        assert await slow[-1].answered() == 503
        small = Client(limit, SMALL)
        await small.send()
        assert await small.answered() == 200
        for client in slow:
            client.task.cancel()

    run(test, monkeypatch)


def test_bytes_are_given_back_when_a_body_is_read_and_not_when_it_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        app = Held()
        limit = body_limit(app)
        waiting = [Client(limit, MAX_BYTES) for _ in range(2 * BODIES_AT_ONCE)]
        for number, client in enumerate(waiting, 1):
            await client.send()
            while app.begun < number:
                await asyncio.sleep(0.001)
        assert limit._held._held[:3] == [0, 0, 0]
        app.go.set()
        assert {await client.answered() for client in waiting} == {200}
        assert limit._held._held == [0, 0, 0, 0]

    run(test, monkeypatch)


def test_what_requests_keep_of_large_bodies_is_bounded_and_lets_others_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        app = Held()
        limit = body_limit(app)
        waiting = [Client(limit, MAX_BYTES) for _ in range(KEPT_AT_ONCE)]
        for number, client in enumerate(waiting, 1):
            await client.send()
            while app.begun < number:
                await asyncio.sleep(0.001)
        large = Client(limit, MAX_BYTES)
        await large.send(LARGE + 1)
        assert await large.answered() == 503
        medium = Client(limit, LARGE)
        await medium.send()
        app.go.set()
        assert await medium.answered() == 200

    run(test, monkeypatch)


def test_an_application_that_does_not_say_so_gives_back_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def test() -> None:
        app = Held(gives_back=False)
        limit = body_limit(app)
        client = Client(limit, LARGE)
        await client.send()
        assert sum(limit._held._held) == LARGE
        app.go.set()
        await client.answered()
        assert sum(limit._held._held) == 0

    run(test, monkeypatch)


def test_a_small_body_that_is_announced_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    assert min(MAX_NAMES, MAX_VALUES) > SMALL  # so its depth is all that is to be counted

    async def test() -> None:
        app = Held(gives_back=False)
        limit = body_limit(app)
        client = Client(limit, SMALL, announced=True)
        await client.send(5)
        await client.send()
        while not app.begun:
            await asyncio.sleep(0.001)
        assert limit._held._held == [0, 0, 0, 0]
        assert GIVE_BACK not in client.scope
        app.go.set()
        assert await client.answered() == 200

    run(test, monkeypatch)


@pytest.mark.parametrize("announced", [True, False])
@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"{}", 200),
        (b"\xef\xbb\xbf{}", 200),
        (b"[" * (MAX_DEPTH + 1), 400),
        (b'"' + b"[" * 1000 + b'"', 200),
        (b"[" + b"[]," * 1000 + b"[]]", 200),
        (b"\xff", 400),
        ("[]".encode("utf-16"), 400),
        ("[]".encode("utf-16-le"), 400),
        ("[]".encode("utf-16-be"), 400),
        ("[]".encode("utf-32-be"), 400),
    ],
)
def test_a_small_body_is_looked_through_whether_it_is_announced_or_not(
    monkeypatch: pytest.MonkeyPatch, content: bytes, status: int, announced: bool
) -> None:
    async def test() -> None:
        app = Held(gives_back=False)
        app.go.set()
        client = Client(body_limit(app), len(content), announced=announced)
        await client.send(content=content)
        assert await client.answered() == status

    run(test, monkeypatch)


def test_nothing_of_the_server_keeps_a_body_that_was_received(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    references: list[int] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        references.append(sys.getrefcount(body))
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def test() -> None:
        for size in (SMALL, LARGE + 1):
            for announced in (True, False):
                client = Client(body_limit(app), size, announced=announced)
                await client.send()
                assert await client.answered() == 200

    run(test, monkeypatch)
    assert references == [2] * 4  # `body` and the argument


@pytest.mark.parametrize("size", [SMALL, MAX_BYTES])
@pytest.mark.parametrize(
    ("stall", "seconds", "words"), [(0.05, 9, "nothing of it"), (9, 0.05, "0.05")]
)
def test_a_client_that_owes_a_body_and_sends_nothing_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, stall: float, seconds: float, words: str, size: int
) -> None:
    said: list[Any] = []

    def refuse(status: int, message: str, headers: Any) -> Any:
        said.append((status, message, headers))
        return http_error(status, message, headers)

    async def test() -> None:
        limit = BodyLimit(Held(), refuse, MAX_BYTES, seconds, no_rejections())
        client = Client(limit, size, announced=True)
        await client.send(size // 2)
        assert await client.answered() == 408
        assert sum(limit._held._held) == 0

    monkeypatch.setattr(request_body, "STALL_SECONDS", stall)
    run(test, monkeypatch)
    ((_, message, headers),) = said
    assert words in message
    assert headers == {"Connection": "close"}


@pytest.mark.parametrize(("size", "most"), [(SMALL, 8), (SMALL + 1, 1), (LARGE, 1)])
def test_of_many_bodies_above_a_small_size_one_is_looked_through_in_a_turn_of_the_loop(
    monkeypatch: pytest.MonkeyPatch, size: int, most: int
) -> None:
    """Or `/health` would wait for all that came at once."""
    turns: list[int] = []

    async def test() -> None:
        app = Held()
        app.go.set()
        limit = body_limit(app)
        loop, turn = asyncio.get_running_loop(), 0

        def count() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(count)

        count()
        monkeypatch.setattr(held_bodies, "looked_through", lambda chunks, path: turns.append(turn))
        clients = [Client(limit, size) for _ in range(8)]
        await asyncio.sleep(0)
        for client in clients:
            client._pieces.put_nowait({"type": "http.request", "body": b" " * size})
        for client in clients:
            assert await client.answered() == 200

    run(test, monkeypatch)
    assert len(turns) == 8
    assert max(map(turns.count, turns)) <= most
    assert (len(set(turns)) == 8) == (most == 1)
