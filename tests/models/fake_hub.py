"""A model hub on the loopback interface: the few endpoints that a snapshot download needs."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Repository:
    """A model: its files by path, and whether they need an accepted licence or the hub is broken.

    claimed_sizes: what the hub says of files that need not exist (to be too large for any disk).
    """

    files: dict[str, bytes]
    gated: bool = False
    broken: bool = False
    claimed_sizes: dict[str, int] = field(default_factory=dict)


@dataclass
class FakeHub:
    """A running hub. `requests` lists (method, path) of all that it was asked."""

    url: str
    repositories: dict[str, Repository]
    requests: list[tuple[str, str]] = field(default_factory=list)

    def add_folder(self, repo_id: str, folder: Path, **options: Any) -> None:
        """Offer the files of a folder as a model."""
        files = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.repositories[repo_id] = Repository(files, **options)


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    """A hub for the length of a with-block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    hub = FakeHub(f"http://127.0.0.1:{server.server_address[1]}", {})
    server.hub = hub  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """GET and HEAD of /api/models... and /ID/resolve/REVISION/FILE."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub: FakeHub = self.server.hub  # type: ignore[attr-defined]
        url = urlsplit(self.path)
        hub.requests.append((self.command, url.path))
        if url.path == "/api/models":
            wanted = parse_qs(url.query).get("search", [""])[0].lower()
            self._json([{"id": name} for name in hub.repositories if wanted in name.lower()])
            return
        found = next((name for name in hub.repositories if f"/{name}/" in url.path + "/"), None)
        if found is None:
            self._refuse(401, "", "Invalid username or password.")  # as the real one, to hide privates
        elif hub.repositories[found].broken:
            self._refuse(503, "", "Service unavailable")
        elif url.path.startswith("/api/models/"):
            self._api(hub.repositories[found], found, url.path.partition(found)[2])
        else:
            self._file(hub.repositories[found], url.path.partition("/resolve/")[2])

    def _api(self, repository: Repository, repo_id: str, path: str) -> None:
        sizes = {name: len(data) for name, data in repository.files.items()} | repository.claimed_sizes
        if path.startswith("/tree/"):
            self._json(
                [
                    {"type": "file", "path": name, "size": size, "oid": _etag(name)}
                    for name, size in sizes.items()
                ]
            )
        elif path in ("", "/revision/main"):
            siblings = [{"rfilename": name} for name in sizes]
            self._json({"id": repo_id, "sha": COMMIT, "siblings": siblings})
        else:
            self._refuse(404, "RevisionNotFound", "Invalid rev id")

    def _file(self, repository: Repository, path: str) -> None:
        name = path.partition("/")[2]
        if repository.gated:
            self._refuse(403, "GatedRepo", "Access to this model is restricted.")
            return
        if name not in repository.files and name not in repository.claimed_sizes:
            self._refuse(404, "EntryNotFound", "Entry not found")
            return
        data = repository.files.get(name, b"")
        size = repository.claimed_sizes.get(name, len(data))
        headers = {"ETag": f'"{_etag(name)}"', "X-Repo-Commit": COMMIT}
        self._send(200, data, headers | {"Content-Length": str(size)})

    def _json(self, value: Any) -> None:
        data = json.dumps(value).encode()
        self._send(200, data, {"Content-Type": "application/json", "Content-Length": str(len(data))})

    def _refuse(self, status: int, code: str, message: str) -> None:
        headers = {"X-Error-Message": message, "Content-Length": "0"}
        self._send(status, b"", headers | ({"X-Error-Code": code} if code else {}))

    def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Silence."""


def _etag(name: str) -> str:
    return hashlib.sha1(name.encode()).hexdigest()
