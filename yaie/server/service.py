"""What every route needs: the engine, and the name under which it serves its model."""

from typing import Annotated, Any

from fastapi import Depends
from starlette.requests import Request

from yaie.core.errors import ModelNotFoundError
from yaie.engine.async_engine import AsyncEngine


class Service:
    """One model behind one name."""

    def __init__(self, engine: AsyncEngine, served_model_name: str | None = None) -> None:
        """`served_model_name`: None for the model's own name, known once it is loaded."""
        self.engine = engine
        self._name = served_model_name

    @property
    def model_name(self) -> str:
        """What clients call the model. Raises EngineUnavailableError while it loads."""
        return self._name or self.engine.engine.model_name

    @property
    def sampling_defaults(self) -> dict[str, Any]:
        """Sampling parameters of requests that do not give them."""
        return self.engine.engine.sampling_defaults

    def check_model(self, name: str | None) -> None:
        """Raises ModelNotFoundError unless `name` is the served model, or not given."""
        if name not in (None, self.model_name):
            raise ModelNotFoundError(
                f"The model {name!r} does not exist here; this server serves {self.model_name!r}.",
                param="model",
            )


def _get_service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


ServiceOf = Annotated[Service, Depends(_get_service)]
"""A route's parameter of this type is given the app's Service."""
