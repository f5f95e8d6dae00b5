from typing import Any

from yaie.core.contracts.graphs import Size


def attack_the_sizes(part: Any) -> Any:
    """The smallest size with room is taken."""
    sizes = [Size(n, 0, 0) for n in part.padded_sizes(20)]
    return [size.decodes for size in sizes], part.size_for(sizes, Size(4, 0, 0)).decodes
