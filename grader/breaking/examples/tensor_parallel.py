from typing import Any


def attack_ten_rows_on_four_ranks(part: Any) -> Any:
    """The shares are as even as they can be, and together they are all rows."""
    return [list(part.share(10, rank, 4)) for rank in range(4)]
