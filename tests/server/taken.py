"""What the endpoints take as bodies."""

from typing import Any

from tests.server.fake_engine import FakeEngine
from yaie.engine.background.async_engine import AsyncEngine
from yaie.parts import load_parts
from yaie.server.app import routers
from yaie.server.openapi.document import bodies
from yaie.server.service import Service


def bodies_taken() -> dict[str, Any]:
    """The type of each endpoint's body, by path."""
    service = Service(AsyncEngine(FakeEngine))
    known = routers(service, load_parts("none")["api_server"])
    return dict(pair for router in known for pair in bodies(router))
