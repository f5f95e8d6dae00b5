"""What a launcher such as torchrun tells each of the processes that it starts, on one host or several.

Imports no torch: the command line asks before anything slow happens.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from yaie.core.compat import Self
from yaie.core.config import EngineConfig
from yaie.core.errors import ConfigError
from yaie.system.seals import HOW_TO_MAKE, LEAST_SECRET

NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
MOST_PORT = 65535
SECRET = "YAIE_RANK_SECRET"
"""The variable with what ranks prove to each other that they belong together."""


@dataclass(frozen=True, slots=True)
class Launch:
    """This process among those of a launch.

    rank: of all; rank 0 has the scheduler and the HTTP server. size: processes in all.
    local_rank, local_size: the same on this host; the rank here takes the GPU of this number.
    address, port: of rank 0's host, where all of them meet. secret: what all of them know.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    address: str
    port: int
    secret: bytes = field(default=b"", repr=False)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self | None:
        """What RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT say, which torchrun sets; None unless all
        four are there. LOCAL_RANK and LOCAL_WORLD_SIZE are one process on each host if not given.

        Raises ConfigError for a variable that is no number, or out of range.
        """
        if not all(environ.get(name) for name in NEEDED):
            return None
        size = _number(environ, "WORLD_SIZE", 1)
        local_size = _number(environ, "LOCAL_WORLD_SIZE", 1, default=1)
        return cls(
            rank=_number(environ, "RANK", 0, size - 1),
            size=size,
            local_rank=_number(environ, "LOCAL_RANK", 0, local_size - 1, default=0),
            local_size=local_size,
            address=environ["MASTER_ADDR"],
            port=_number(environ, "MASTER_PORT", 1, MOST_PORT),
            secret=environ.get(SECRET, "").strip().encode(errors="surrogateescape"),
        )

    def check(self, config: EngineConfig) -> None:
        """Raise ConfigError unless there is one process for each rank, and a secret."""
        self._check_size(config)
        if len(self.secret) < LEAST_SECRET:
            has = f"has {len(self.secret)} bytes" if self.secret else "is not set"
            raise ConfigError(
                f"{SECRET} {has}, and ranks that a launcher has started need a secret of {LEAST_SECRET} "
                f"bytes or more, by which they know each other: run `{HOW_TO_MAKE}` once, and set "
                f"{SECRET} to what it prints for every process, on every host",
                param=SECRET,
            )

    def _check_size(self, config: EngineConfig) -> None:
        if self.size == config.num_ranks:
            return
        asked = (
            f"tensor_parallel {config.tensor_parallel} times pipeline_parallel "
            f"{config.pipeline_parallel}"
        )
        raise ConfigError(
            f"the launcher started {self.size} processes (WORLD_SIZE), and {asked} needs "
            f"{config.num_ranks}: change one of them, or unset {', '.join(NEEDED)} to have the ranks "
            "started here",
            param="pipeline_parallel" if config.pipeline_parallel > 1 else "tensor_parallel",
        )


def launched(environ: Mapping[str, str], config: EngineConfig) -> Launch | None:
    """The launch that this process is part of; None if it is alone, also by what the launcher says.

    Raises ConfigError as `Launch` does.
    """
    launch = Launch.from_environment(environ)
    if launch is None or launch.size == config.num_ranks == 1:
        return None
    launch.check(config)
    return launch


def _number(
    environ: Mapping[str, str],
    name: str,
    least: int,
    most: int | None = None,
    default: int | None = None,
) -> int:
    text = environ.get(name) or ("" if default is None else str(default))
    number = int(text) if text.isdecimal() else -1
    if number < least or (most is not None and number > most):
        limits = f"from {least}" + ("" if most is None else f" to {most}")
        raise ConfigError(
            f"the launcher's variable {name} must be a whole number {limits}, got {text!r}",
            param=name,
        )
    return number
