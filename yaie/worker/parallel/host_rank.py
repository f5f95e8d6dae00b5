"""What runs in the process of a rank that a launcher has started, on whichever host."""

import logging
import os
import signal
import threading
from dataclasses import replace
from typing import NoReturn

from yaie.core.config import EngineConfig
from yaie.core.errors import YaieError
from yaie.worker.parallel.hosts import HostPipe
from yaie.worker.parallel.launch import Launch
from yaie.worker.parallel.messages import Broken, Failure
from yaie.worker.parallel.place import places
from yaie.worker.parallel.rank_process import Rank
from yaie.worker.parallel.rendezvous import check_terms, own_address

logger = logging.getLogger(__name__)

LEAVE_SECONDS = 25.0
"""How long a rank that is told to stop waits for rank 0 to end. That may let requests finish first, and
has got the same signal if the whole service is being stopped; torchrun kills after 30 seconds."""
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_host_rank(config: EngineConfig, launch: Launch) -> NoReturn:
    """The life of this process: until rank 0 says that it is over, a step breaks, or rank 0 is gone. The
    signals are held back (`child.hold_signals`).

    Raises ConfigError, ModelError, PartError, KernelError, or RankError if it cannot start; rank 0 is
    told.
    """
    place = places(config)[launch.rank]
    leaving = _Leaving(place.rank)
    pipe = HostPipe(launch, config)
    rank = Rank(pipe, config, place)
    try:
        check_terms(launch, config, pipe.rendezvous)
        rank.start(pipe.rendezvous, launch.local_rank, launch.local_size)
        pipe.settle(config.rank_timeout)
        leaving.tell_by(rank)
        rank.serve()
    except YaieError as error:
        rank.ends_itself = True
        rank.tell(Broken(_of_host(error, launch)))
        raise
    except Exception as error:
        logger.error("rank %d failed", place.rank, exc_info=True)
        rank.tell(Broken(Failure.of(error)))
    os._exit(1)  # without waiting for others, who may hang


def _of_host(error: YaieError, launch: Launch) -> Failure:
    """The error as rank 0 shows it, whose user sits elsewhere."""
    where = f"on {own_address(launch)}, rank {launch.rank}"
    told = Failure.of(error)
    return replace(told, message=f"{where}: {told.message}")


class _Leaving:
    """What SIGINT and SIGTERM do: at once while the rank starts, later not before rank 0 has had time to
    end by itself. The second one ends it at once."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._told: Rank | None = None
        threading.Thread(target=self._wait, name="yaie-signals", daemon=True).start()

    def tell_by(self, rank: Rank) -> None:
        """It serves from here on."""
        self._told = rank

    def _wait(self) -> None:
        number = signal.sigwait(SIGNALS)
        if self._told is not None:
            logger.warning(
                "rank %d was told to stop: it waits up to %g seconds for rank 0 to end first",
                self._rank, LEAVE_SECONDS,
            )  # fmt: skip
            later = threading.Timer(LEAVE_SECONDS, self._leave, (number,))
            later.daemon = True
            later.start()
            number = signal.sigwait(SIGNALS)
        self._leave(number)

    def _leave(self, number: int) -> NoReturn:
        name = signal.Signals(number).name
        if self._told is not None:
            self._told.tell(Broken(Failure("", f"{name} has ended it on its host")))
        os._exit(128 + number)
