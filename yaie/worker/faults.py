"""Whose fault an exception is, as data. Imports no torch: a server's own process asks it, too."""

from yaie.core.step import Fault
from yaie.curriculum.blame import line_in, line_of_ours, lines_of, summarize
from yaie.parts import Parts


def fault_of(error: BaseException, parts: Parts) -> Fault:
    """An exception as data: which of the learner's parts failed, if one did, and in which line."""
    mine = [part for part in parts.table() if part.is_yours]
    for file, _ in lines_of(error):
        for part in mine:
            if file.is_relative_to(part.folder):
                where = line_in(part.folder, error) or ""
                return Fault(summarize(error), part.lab, where)
    return Fault(summarize(error), "", line_of_ours(error))
