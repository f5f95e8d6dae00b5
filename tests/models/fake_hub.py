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
PULL_COMMIT = "fedcba9876543210fedcba9876543210fedcba98"


@dataclass
class Repository:
    """A model: its files by path, and whether they need an accepted licence or the hub is broken.

    claimed_sizes: what the hub says of files that need not exist (to be too large for any disk).
    pull: a pull request on top of main; its number is 7.
    """

    files: dict[str, bytes]
    gated: bool = False
    broken: bool = False
    claimed_sizes: dict[str, int] = field(default_factory=dict)
    pull: "Pull | None" = None

    def files_at(self, commit: str) -> dict[str, bytes]:
        """The files of main, or of the pull request."""
        return self.files | (self.pull.files if self.pull and commit == PULL_COMMIT else {})

    def sizes_at(self, commit: str) -> dict[str, int]:
        files = self.files_at(commit)
        return {name: len(data) for name, data in files.items()} | self.claimed_sizes


@dataclass
class Pull:
    """A pull request: what it adds, by whom, and on top of which commit."""

    files: dict[str, bytes]
    author: str = "SFconvertbot"
    title: str = "Adding `safetensors` variant of this model"
    parent: str = COMMIT

    def described(self, repo_id: str) -> dict[str, Any]:
        """As the hub lists discussions."""
        return {
            "num": 7,
            "title": self.title,
            "author": {"name": self.author},
            "createdAt": "2023-03-20T10:00:00.000Z",
            "status": "open",
            "isPullRequest": True,
            "repo": {"name": repo_id, "type": "model"},
        }


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
            self._refuse(401, "RepoNotFound", "Invalid username or password.")
        elif hub.repositories[found].broken:
            self._refuse(503, "", "Service unavailable")
        elif url.path.startswith("/api/models/"):
            self._api(hub.repositories[found], found, url.path.partition(found)[2])
        else:
            self._file(hub.repositories[found], url.path.partition("/resolve/")[2])

    def _api(self, repository: Repository, repo_id: str, path: str) -> None:
        pull = repository.pull
        if path == "/discussions":
            pulls = [pull.described(repo_id)] if pull else []
            self._json({"discussions": pulls, "count": len(pulls), "start": 0})
        elif path == "/commits/main":
            self._json([_commit(COMMIT)])
        elif pull and path == "/commits/refs%2Fpr%2F7":
            self._json([_commit(PULL_COMMIT), _commit(pull.parent)])
        elif path.startswith("/tree/"):
            sizes = repository.sizes_at(path.removeprefix("/tree/"))
            self._json(
                [
                    {"type": "file", "path": name, "size": size, "oid": _etag(name)}
                    for name, size in sizes.items()
                ]
            )
        elif path in ("/revision/main", f"/revision/{COMMIT}"):
            self._revision(repository, repo_id, COMMIT)
        elif pull and path in ("/revision/refs%2Fpr%2F7", f"/revision/{PULL_COMMIT}"):
            self._revision(repository, repo_id, PULL_COMMIT)
        else:
            self._refuse(404, "RevisionNotFound", "Invalid rev id")

    def _revision(self, repository: Repository, repo_id: str, commit: str) -> None:
        siblings = [{"rfilename": name} for name in repository.sizes_at(commit)]
        self._json({"id": repo_id, "sha": commit, "siblings": siblings})

    def _file(self, repository: Repository, path: str) -> None:
        commit, _, name = path.partition("/")
        if repository.gated:
            self._refuse(403, "GatedRepo", "Access to this model is restricted.")
            return
        size = repository.sizes_at(commit).get(name)
        if size is None:
            self._refuse(404, "EntryNotFound", "Entry not found")
            return
        data = repository.files_at(commit).get(name, b"")
        headers = {"ETag": f'"{_etag(name)}"', "X-Repo-Commit": commit}
        self._send(200, data, headers | {"Content-Length": str(size)})

    def _json(self, value: Any) -> None:
        data = json.dumps(value).encode()
        self._send(
            200, data, {"Content-Type": "application/json", "Content-Length": str(len(data))}
        )

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


def _commit(commit_id: str) -> dict[str, Any]:
    """As the hub lists commits."""
    date = "2023-03-20T10:00:00.000Z"
    return {"id": commit_id, "authors": [], "date": date, "title": "", "message": ""}


def _etag(name: str) -> str:
    return hashlib.sha1(name.encode()).hexdigest()
