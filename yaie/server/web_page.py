"""The page at `/`: files of `yaie/server/web`, served as they are. It asks nobody else for anything."""

from os import PathLike
from pathlib import Path

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FOLDER = Path(__file__).parent / "web"
INDEX = "index.html"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # figures set sizes by style attributes
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'self'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
"""Content-Security-Policy: a text of the model's cannot become a script, and nothing is loaded from
elsewhere."""
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # ask each time; most often it has not changed
}
TYPES = {".js": "text/javascript", ".jsonl": "application/jsonl", ".svg": "image/svg+xml"}
"""Some systems map these to others, with which a browser refuses to run a module."""


class PageFiles(StaticFiles):
    """The files, with headers that confine them."""

    def file_response(self, full_path: str | PathLike[str], stat_result: object, scope: Scope,
                      status_code: int = 200) -> Response:  # fmt: skip
        response = super().file_response(full_path, stat_result, scope, status_code)  # type: ignore[arg-type]
        response.headers.update(HEADERS)
        if kind := TYPES.get(Path(full_path).suffix):
            response.headers["Content-Type"] = f"{kind}; charset=utf-8"
        return response


def page_routes() -> list[Route | Mount]:
    """`/` and all below `/web`."""
    files = PageFiles(directory=FOLDER)

    async def index(request: object) -> Response:
        scope: Scope = {**request.scope, "path": f"/{INDEX}"}  # type: ignore[attr-defined]
        response = await files.get_response(INDEX, scope)
        assert isinstance(response.headers, Headers)
        return response

    return [Route("/", index, include_in_schema=False), Mount("/web", files, name="web")]


def page_paths() -> frozenset[str]:
    """What can be had without a key: none of it is a secret, and the page itself asks for the key."""
    files = (path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_file())
    return frozenset({"/", *(f"/web/{name}" for name in files)})
