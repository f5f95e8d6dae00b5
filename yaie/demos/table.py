"""The demos by lab."""

from importlib import import_module

from yaie.demos.shown import Shown
from yaie.demos.subject import Subject
from yaie.parts import Part

MODULES = {
    "sampler": "sampler",
    "transformer_ops": "transformer_ops",
    "paged_cache": "paged_cache",
    "radix_tree": "radix_tree",
    "radix_attention": "radix_attention",
    "scheduler": "scheduler",
    "engine": "engine",
    "api_server": "api_server",
    "cuda_graphs": "cuda_graphs",
    "speculative": "speculative",
    "structured_output": "structured_output",
}
"""Which module of this package shows a lab: each has a function `show`."""


def show(part: Part) -> Shown:
    """Run the demo of a lab on this part. Raises what the part raises, and PartError for a request that
    failed."""
    module = import_module(f"{__package__}.{MODULES[part.lab]}")
    shown: Shown = module.show(Subject(part))
    return shown
