"""What a request's body is to be read as, in words that another process understands."""

import sys
from dataclasses import dataclass
from typing import Any

from fastapi.routing import APIRoute

from yaie.server.lenient.fields import DIALECTS, Dialect


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a body is to be read as. kind: "module:name" of a type. api: the name of the part that
    speaks OpenAI's API, for what is made ready beforehand; None to make nothing ready. dialect: of what
    clients may send beyond that type; None for nothing. is_strict: what has no effect is refused."""

    kind: str
    api: str | None = None
    dialect: Dialect | None = None
    is_strict: bool = False


def wanted_by(route: APIRoute, api: str | None, *, is_strict: bool) -> Wanted | None:
    """By a route's endpoint; None if it takes no body, or one of a type that has no name."""
    kind = _kind_of(route)
    return None if kind is None else Wanted(kind, api, DIALECTS.get(route.path), is_strict)


def module_name(api: Any) -> str | None:
    """Where another process finds the part; None if it is no module (of a test)."""
    name = getattr(api, "__name__", "")
    return name if sys.modules.get(name) is api else None


def _kind_of(route: APIRoute) -> str | None:
    """Module and name of the type that a route's endpoint takes as its body; None if it takes none, or
    one that another process cannot import by name."""
    taken = route.dependant.body_params
    if len(taken) != 1:
        return None
    endpoint: Any = route.endpoint
    wanted = getattr(endpoint, "__annotations__", {}).get(taken[0].name)
    if isinstance(wanted, str):
        wanted = getattr(endpoint, "__globals__", {}).get(wanted)
    for module in (endpoint.__module__, getattr(wanted, "__module__", "")):
        for name, value in vars(sys.modules.get(module, sys)).items():
            if value is wanted is not None:
                return f"{module}:{name}"
    return None
