"""Steps in a file: recorded while an engine runs, carried out again by a worker in another process.

    python -m yaie.worker.replay recording.pkl

A recording begins with what the worker was made of (the engine's configuration and its sizes) and goes
on with what it was sent, in order. The second worker has never met the first: whatever it needs stands
in the steps. It prints how many steps gave the same result; the exit status is 1 if any did not.

A recording is a pickle, which can run code when it is read: replay only your own.
"""

import argparse
import pickle
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from yaie.core.config import EngineConfig
from yaie.core.contracts import StepHandle, Worker
from yaie.core.step import StepInput, StepMasks, StepResult
from yaie.worker.build import Sizes, make_worker
from yaie.worker.step_future import FOR_MASKS, FOR_THE_END, Stages, StepFuture
from yaie.worker.threads import use_threads
from yaie.worker.windows import held_of


class Recorder:
    """Stands in front of a worker and writes down what it is sent, and what it answers."""

    def __init__(self, worker: Worker, file: BinaryIO, config: EngineConfig, sizes: Sizes) -> None:
        self._worker = worker
        self._file = file
        self.write((config, sizes))

    def write(self, item: Any) -> None:
        """One more object of the recording."""
        pickle.dump(item, self._file, protocol=5)

    def execute(self, step: StepInput) -> StepFuture:
        """See `yaie.core.contracts.Worker`."""
        return StepFuture(step, self._stages(step))

    def _stages(self, step: StepInput) -> Stages:
        self.write(step)
        own = self._worker.execute(step)
        if step.masked and (masks := (yield FOR_MASKS)) is not None:
            self.write(masks)
            own.mask(masks)
        yield FOR_THE_END
        result = own.result()
        self.write(result)
        return result

    def close(self) -> None:
        """See the contract."""
        self._worker.close()


def replay(path: Path) -> tuple[int, list[int]]:
    """(steps carried out, numbers of those whose result differs from the recorded one)."""
    with path.open("rb") as file:
        handles: dict[int, StepHandle] = {}
        count, different = 0, []
        while (item := _next(file)) is not None:
            if isinstance(item, tuple):  # a worker was made, the first or one after a failure
                worker = _worker(*item)
            elif isinstance(item, StepInput):
                handles[item.step] = worker.execute(item)
            elif isinstance(item, StepMasks):
                handles[item.step].mask(item)
            else:
                count += 1
                if _untimed(handles.pop(item.step).result()) != _untimed(item):
                    different.append(item.step)
    return count, different


def _untimed(result: StepResult) -> StepResult:
    """Without the seconds that drafts took, which are others each time."""
    made = result.extras.get("proposals")
    if made is None:
        return result
    drafts = {name: array for name, array in made.items() if name != "seconds"}
    return replace(result, extras={**result.extras, "proposals": drafts})


def _next(file: BinaryIO) -> Any:
    try:
        return pickle.load(file)
    except EOFError:
        return None


def _worker(config: EngineConfig, sizes: Sizes) -> Worker:
    """A worker like the recorded one, without an engine around it."""
    from yaie.backends import choose_backend
    from yaie.models.loader import ModelLoader, resolve_device
    from yaie.worker.heads import load_head

    use_threads(config.threads)  # sums may depend on it
    config = replace(config, num_blocks=sizes.num_blocks)
    loader = ModelLoader(config)
    device = resolve_device(config)
    backend = choose_backend(
        config,
        device,
        loader.head_dims,
        packed=loader.is_packed,
        stateful=loader.keeps_states,
    )
    products = partial(backend.make_packed_gemm, device)
    blocks = None if config.num_ranks > 1 else partial(backend.make_block_gemm, device)
    model = loader.load(backend.make_ops(), backend.dtypes, products, blocks=blocks)
    head = load_head(config, model, backend)
    held = None
    if sizes.num_windowed_blocks:
        held = held_of(config, model.adapter, model.max_length)
    return make_worker(config, backend, model, sizes, head, held)


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay a recording; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m yaie.worker.replay", description=__doc__)
    parser.add_argument("recording", type=Path, help="written by a Recorder; your own, or trusted")
    count, different = replay(parser.parse_args(arguments).recording)
    print(f"{count - len(different)} of {count} steps gave the same result")
    if different:
        print(f"different: {', '.join(map(str, different[:20]))}")
    return 1 if different or not count else 0


if __name__ == "__main__":
    sys.exit(main())
