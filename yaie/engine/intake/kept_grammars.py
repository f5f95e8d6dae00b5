"""Grammars that were compiled, and those that could not be, for the next request with the same one."""

import threading
from collections import OrderedDict
from collections.abc import Callable

from yaie.core.errors import InvalidRequestError
from yaie.core.params import Constraint
from yaie.engine.intake.matchers import Compiled

MOST_KEPT = 64
MOST_KEPT_CHARS = 1 << 20
"""Of their texts. A grammar of 128 kB may hold 100 MB, so eight of these are kept and no more."""
OVERHEAD = 256


class KeptGrammars:
    """The grammars that were asked for last. May be called on several threads."""

    def __init__(self, compile: Callable[[Constraint, bool], Compiled]) -> None:
        """compile: a constraint; without lab 21's part if the second argument says so. Raises
        InvalidRequestError for one that never can be."""
        self._compile = compile
        self._kept: OrderedDict[Constraint, Compiled | InvalidRequestError] = OrderedDict()
        self._num_chars = 0
        self._lock = threading.Lock()

    def get(self, constraint: Constraint) -> Compiled:
        """A grammar, compiled now if it is not kept, or if the one that is has taken too long.

        Raises what compiling it raises. What was refused is refused again at once.
        """
        with self._lock:
            found = self._kept.get(constraint)
            if found is not None:
                self._kept.move_to_end(constraint)
        if isinstance(found, InvalidRequestError):
            raise type(found)(found.message, param=found.param)
        if found is not None and not found.is_spent:
            return found
        try:
            compiled = self._compile(constraint, found is not None)
        except InvalidRequestError as error:
            self._keep(constraint, error.with_traceback(None))
            raise
        self._keep(constraint, compiled)
        return compiled

    def _keep(self, constraint: Constraint, what: Compiled | InvalidRequestError) -> None:
        with self._lock:
            if constraint not in self._kept:
                self._num_chars += len(constraint.text) + OVERHEAD
            self._kept[constraint] = what
            while len(self._kept) > MOST_KEPT or self._num_chars > MOST_KEPT_CHARS:
                dropped, _ = self._kept.popitem(last=False)
                self._num_chars -= len(dropped.text) + OVERHEAD
