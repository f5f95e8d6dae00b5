"""Where other tasks than the one that is graded are still stubs, the reference's methods stand in."""

import inspect
from collections.abc import Mapping, Sequence


def lend(own: type, reference: type, methods: Mapping[str, Sequence[str]], task: str) -> type:
    """`own` with the reference's methods for tasks other than `task` of which every method is a stub.

    methods: by task. A class that is built in another way than the stub is left as it is.
    """
    unwritten = [
        names
        for id, names in methods.items()
        if id != task and all(_is_stub(own, name) for name in names)
    ]
    lent = {name: vars(reference)[name] for names in unwritten for name in names}
    return type(own.__name__, (own,), lent) if lent else own


def _is_stub(own: type, name: str) -> bool:
    method = getattr(own, name, None)
    try:
        return "not implemented yet; see chapter" in inspect.getsource(method)  # type: ignore[arg-type]
    except (TypeError, OSError):  # there is none, or its source is not at hand
        return False
