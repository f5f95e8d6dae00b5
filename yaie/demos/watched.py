"""Methods of a part that are watched, or left out, while a demo runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(owner: type, name: str, method: Callable[..., Any]) -> Iterator[None]:
    """Within the block objects of a class have another method."""
    is_own, before = name in vars(owner), getattr(owner, name)
    setattr(owner, name, method)
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


@contextmanager
def watched(owner: type, name: str, tell: Callable[..., None]) -> Iterator[None]:
    """Within the block `tell` gets the arguments of each call of a method, before it is made."""
    method = getattr(owner, name)

    def told(self: Any, *args: Any, **kwargs: Any) -> Any:
        tell(*args, **kwargs)
        return method(self, *args, **kwargs)

    with replaced(owner, name, told):
        yield
