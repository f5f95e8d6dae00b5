"""The notebooks as they come out on the reference: run once, for the labs' tests and for the book's."""

import time
from functools import cache
from typing import Any

from book.tools.notebook_pages import execute


@cache
def executed(lab: str) -> Any:
    """The notebook of a lab with its outputs. Not to be changed: others look at it, too."""
    begin = time.perf_counter()
    notebook = execute(lab)
    print(f"{lab}: {time.perf_counter() - begin:.1f} s")
    return notebook
