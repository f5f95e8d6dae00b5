"""Processes of ranks, to be asked for times: all ranks of a group, or one whose others do not exist."""

import contextlib
import multiprocessing
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from yaie.bench.scale.rank import AllReduces, Steps, Timed, run_rank
from yaie.bench.scale.sizes import Dims
from yaie.core.config import EngineConfig
from yaie.core.errors import YaieError
from yaie.system.child import how_it_ended, signals_held
from yaie.worker.parallel.place import Place


class Crew:
    """Ranks of one group. All are asked at once, and each answers for itself."""

    def __init__(self, config: EngineConfig, size: int, file: Path | None) -> None:
        """config: with the threads of one rank. file: through which they meet; None starts rank 0 alone
        of `size`."""
        self.size = size
        self._members: list[tuple[Connection[Any, Any], Any]] = []
        split = replace(config, tensor_parallel=size)
        if size == 1:
            split = replace(split, collectives="auto", rank_timeout=10.0)
        spawn = multiprocessing.get_context("spawn")
        for rank in range(size if file is not None else 1):
            here, there = spawn.Pipe()
            arguments = (there, split, Place(rank, size, 1), file)
            process = spawn.Process(target=run_rank, args=arguments, daemon=True)
            with signals_held():
                process.start()
            there.close()
            self._members.append((here, process))

    def ready(self) -> Dims:
        """The model's numbers, once all hold their share. Raises YaieError, or what keeps one from
        starting."""
        found: list[Dims] = [_answer(pipe, process) for pipe, process in self._members]
        return found[0]

    def ask(self, question: Steps | AllReduces) -> list[Timed]:
        """The answer of each rank. Raises YaieError if one is gone."""
        for pipe, _ in self._members:
            with contextlib.suppress(OSError):  # how it ended is told below
                pipe.send(question)
        return [_answer(pipe, process) for pipe, process in self._members]

    def close(self) -> None:
        """End the processes."""
        for pipe, process in self._members:
            pipe.close()
            process.terminate()
        for _, process in self._members:
            process.kill()
            process.join()


def _answer(pipe: "Connection[Any, Any]", process: Any) -> Any:
    try:
        found = pipe.recv()
    except (EOFError, OSError):
        process.join(5)
        ended = how_it_ended(process.exitcode or 0)
        raise YaieError(f"a rank {ended} before it had answered") from None
    if isinstance(found, Exception):
        raise found
    return found


@contextlib.contextmanager
def crews(
    config: EngineConfig, real: list[int], lone: list[int]
) -> Iterator[tuple[Dims, dict[int, Crew]]]:
    """The model's numbers and, by size, groups with all ranks (`real`) or with rank 0 alone (`lone`).

    Their processes end with the context. Raises what keeps one from starting.
    """
    made: dict[int, Crew] = {}
    with tempfile.TemporaryDirectory(prefix="yaie-scale-") as folder, contextlib.ExitStack() as end:
        for size in [*real, *lone]:
            meets = size in real and size > 1
            file = Path(folder) / f"store{size}" if meets else None
            made[size] = Crew(config, size, file)
            end.callback(made[size].close)
        dims = [crew.ready() for crew in made.values()]
        yield dims[0], made
