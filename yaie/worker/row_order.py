"""Some rows of a step, or all in another order: what is computed, and its result as it was asked for.

longest_first   of decodes: a GPU hands programs out in the order of the rows, and one that reads
                many keys must not be the last to begin
answering       when the device has no memory left for a step's prompts: the requests that answer
                already go on without them
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from yaie.core.step import Arrays, Extras, StepInput, StepMasks, StepResult, no_ints

RowOrder = NDArray[np.int64]
"""[m] positions in `StepInput.seats`, in the order of computing."""


def longest_first(step: StepInput) -> RowOrder:
    """All rows of a step of decodes, by falling number of keys."""
    return np.argsort(-step.starts, kind="stable")


def answering(step: StepInput, num_known: NDArray[np.int32]) -> RowOrder:
    """The rows whose tokens were drawn. num_known: of each seat, how many tokens control has sent."""
    return np.flatnonzero(step.starts >= num_known[step.seats])


def pick(step: StepInput, rows: RowOrder) -> StepInput:
    """The step of these rows alone, with their drafts and what is asked about them."""
    drafts, counts = step.drafts, step.num_drafts
    if len(drafts):
        starts = np.cumsum(counts) - counts
        pieces = [drafts[starts[row] : starts[row] + counts[row]] for row in rows.tolist()]
        drafts, counts = np.concatenate([no_ints(), *pieces]), counts[rows]
    return replace(
        step,
        seats=step.seats[rows],
        starts=step.starts[rows],
        num_tokens=step.num_tokens[rows],
        samples=step.samples[rows],
        drafts=drafts,
        num_drafts=counts if len(drafts) else no_ints(),
        extras=_picked(step.extras, rows, len(step.seats)) if step.extras else {},
    )


def _picked(extras: Extras, rows: RowOrder, num_rows: int) -> Extras:
    """What extras say about these of so many rows, at their new places, in the new order."""
    places = np.full(num_rows, -1)
    places[rows] = np.arange(len(rows))
    found = {}
    for name, arrays in extras.items():
        if "rows" not in arrays:
            continue  # about no rows: it was for the step as a whole, and is done
        new = places[arrays["rows"]]
        kept = np.argsort(new, kind="stable")[int((new < 0).sum()) :]
        if len(kept):
            found[name] = {key: array[kept] for key, array in arrays.items()}
            found[name]["rows"] = new[kept].astype(np.int32)
    return found


def masks_of(step: StepInput, masks: StepMasks) -> StepMasks:
    """The masks of a picked step's seats, in its order."""
    places: dict[int, list[int]] = {}
    for row, seat in enumerate(masks.seats.tolist()):
        places.setdefault(seat, []).append(row)  # one for each draw
    rows = [row for seat in step.seats.tolist() for row in places.get(seat, ())]
    return StepMasks(masks.step, masks.seats[rows], masks.bits[rows])


def as_asked(result: StepResult, step: StepInput, rows: RowOrder) -> StepResult:
    """The result of the picked `rows` as one of the whole `step`. Rows left out had no memory."""
    places = rows.tolist()
    sampling = [row for row in places if step.samples[row]]
    drawn = dict(zip(sampling, result.token_ids, strict=True))
    return replace(
        result,
        token_ids=[drawn.get(row, []) for row in np.flatnonzero(step.samples).tolist()],
        corrupted=sorted(places[row] for row in result.corrupted),
        out_of_memory=sorted(set(range(len(step.seats))).difference(places)),
        extras={name: _placed(arrays, rows) for name, arrays in result.extras.items()},
    )


def _placed(arrays: Arrays, rows: RowOrder) -> Arrays:
    """About the picked rows, as one about the whole step."""
    return {**arrays, "rows": rows[arrays["rows"]].astype(np.int32)}


def put_together(results: list[StepResult], sizes: list[int], step: int) -> StepResult:
    """The result of a step, from those of so many of its rows each."""
    whole, first = StepResult(step), 0
    found: dict[str, list[Arrays]] = {}
    for result, size in zip(results, sizes, strict=True):
        whole.token_ids += result.token_ids
        whole.corrupted += [first + row for row in result.corrupted]
        for name, arrays in result.extras.items():
            own = {**arrays, "rows": arrays["rows"] + first}
            found.setdefault(name, []).append(own)
        first += size
    whole.extras = {name: _behind_each_other(parts) for name, parts in found.items()}
    return whole


def _behind_each_other(parts: list[Arrays]) -> Arrays:
    """Rows of several as those of one. Arrays of two dimensions are filled up with 0 to the widest."""
    joined = {}
    for key in parts[0]:
        arrays = [part[key] for part in parts]
        if arrays[0].ndim > 1:
            width = max(array.shape[1] for array in arrays)
            arrays = [np.pad(array, ((0, 0), (0, width - array.shape[1]))) for array in arrays]
        joined[key] = np.concatenate(arrays)
    return joined
