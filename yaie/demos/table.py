"""The demos by lab: each lab has a module of its name here, with a function `show`."""

from importlib import import_module

from yaie.demos.shown import Shown
from yaie.demos.subject import Subject
from yaie.parts import Part


def show(part: Part) -> Shown:
    """Run the demo of a lab on this part. Raises what the part raises, and PartError for a request that
    failed."""
    module = import_module(f"{__package__}.{part.lab}")
    shown: Shown = module.show(Subject(part))
    return shown
