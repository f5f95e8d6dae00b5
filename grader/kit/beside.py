"""What a part has PyTorch do beside its launches: on a GPU each such operation is a launch as well."""

import os
import sys
from types import ModuleType
from typing import Any

from grader.kit.dispatch import Watching

FREE = ("empty", "new_empty", "_unsafe_view", "_reshape_alias", "as_strided")
"""What the names of operations begin with that move nothing."""
SPOKEN = {"_local_scalar_dense": "item", "_to_copy": "to", "max.dim": "max"}
ALONE = (
    "On a GPU each operation of PyTorch is a launch of its own, which reads and writes memory: so are a "
    "copy, a change of dtype, and zeros to begin with. One that gives the host a number (`int`, `bool`, "
    "`item`) also makes it wait for the GPU. A kernel finds rows by their strides, converts what it "
    "loads, and reads positions and slots itself."
)


class Beside(Watching):
    """names: of the operations that the part's own host code has called, in order, without views and
    memory that is only reserved."""

    def __init__(self, part: ModuleType) -> None:
        super().__init__()
        self.names: list[str] = []
        self._folder = os.path.dirname(part.__file__ or "") + os.sep

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """As it is; the call is noted."""
        name = func._schema.name.rpartition(":")[2]
        if not name.startswith(FREE) and not _is_view(func) and self._is_called_by_part():
            self.names.append(SPOKEN.get(name, name.strip("_")))
        return func(*args, **(kwargs or {}))

    def _is_called_by_part(self) -> bool:
        """Not by the interpreter, which copies what a launch is given."""
        frame: Any = sys._getframe(2)
        while frame is not None:
            file = frame.f_code.co_filename
            if file.startswith(self._folder):
                return True
            if file.endswith("interpreter.py"):
                return False
            frame = frame.f_back
        return False


def _is_view(func: Any) -> bool:
    aliases = [one.alias_info for one in func._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)
