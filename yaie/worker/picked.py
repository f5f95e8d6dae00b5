"""Some rows of a step, or all in another order: what is computed, and its result as it was asked for.

longest_first   of decodes: a GPU hands programs out in the order of the rows, and one that reads
                many keys must not be the last to begin
answering       when the device has no memory left for a step's prompts: the requests that answer
                already go on without them
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from yaie.core.step import StepInput, StepMasks, StepResult, no_ints, no_pairs

Picked = NDArray[np.int64]
"""[m] positions in `StepInput.seats`, in the order of computing."""


def longest_first(step: StepInput) -> Picked:
    """All rows of a step of decodes, by falling number of keys."""
    return np.argsort(-step.starts, kind="stable")


def answering(step: StepInput, num_known: NDArray[np.int32]) -> Picked:
    """The rows whose tokens were drawn. num_known: of each seat, how many tokens control has sent."""
    return np.flatnonzero(step.starts >= num_known[step.seats])


def pick(step: StepInput, rows: Picked) -> StepInput:
    """The step of these rows alone. Drafts go along; prompts are not asked about."""
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
        prompt_logprobs=no_ints(),
        pooled=no_pairs(),
        ahead=step.ahead[rows] if len(step.ahead) else no_ints(),
    )


def masks_of(step: StepInput, masks: StepMasks) -> StepMasks:
    """The masks of a picked step's seats, in its order."""
    places: dict[int, list[int]] = {}
    for row, seat in enumerate(masks.seats.tolist()):
        places.setdefault(seat, []).append(row)  # one for each draw
    rows = [row for seat in step.seats.tolist() for row in places.get(seat, ())]
    return StepMasks(masks.step, masks.seats[rows], masks.bits[rows])


def as_asked(result: StepResult, step: StepInput, rows: Picked) -> StepResult:
    """The result of the picked `rows` as one of the whole `step`. Rows left out had no memory."""
    places = rows.tolist()
    sampling = [row for row in places if step.samples[row]]
    drawn = dict(zip(sampling, result.token_ids, strict=True))
    return replace(
        result,
        token_ids=[drawn.get(row, []) for row in np.flatnonzero(step.samples).tolist()],
        corrupted=sorted(places[row] for row in result.corrupted),
        logprobs={places[row]: entries for row, entries in result.logprobs.items()},
        drafts={places[row]: drafts for row, drafts in result.drafts.items()},
        out_of_memory=sorted(set(range(len(step.seats))).difference(places)),
    )
