"""What Python 3.11 brought along and 3.10 takes from elsewhere. `Runner` is asyncio's.

Nothing but this file asks which version runs.
"""

import sys

if sys.version_info >= (3, 11):
    from asyncio import Runner
    from enum import StrEnum
    from typing import Self

    import tomllib
else:
    from enum import Enum

    import tomli as tomllib
    from backports.asyncio.runner import Runner
    from typing_extensions import Self

    class StrEnum(str, Enum):
        """Members are strings, and print as their values."""

        __str__ = str.__str__


__all__ = ["Runner", "Self", "StrEnum", "tomllib"]
