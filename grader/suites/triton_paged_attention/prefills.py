"""What a prefill's kernel does wrong, by what it gave to the functions of `tiles`: see `traced`."""

from collections.abc import Iterable

import numpy as np

from grader.suites.triton_paged_attention.traced import LATEST, Program

SEES_RULE = "A query sees its own key and those before it."
WINDOW_RULE = "The query at position p sees the keys from p - window + 1, or 0, to p."
POSITION_RULE = (
    "Query j of a chunk of c queries stands at position seq_len - c + j: a chunk is the end of its "
    "sequence."
)
UNMASKED_RULE = (
    "Without CAUSAL each row sees all keys that attend_keys is given: these are whole tiles of the keys "
    "up to the tile's first query."
)
TILES_RULE = "A tile has queries of one sequence, and the last tile of each may be partly filled."
COUNTED_RULE = (
    "They are those that are left if tile number t begins at query t * TOKENS of its sequence: the "
    "first tile of a sequence begins at its query 0."
)


def told() -> tuple[str, str | None]:
    """What is wrong first, and the rule, None if the check's own words are one; "" if nothing is."""
    if LATEST.case is None or LATEST.case.queries is None:
        return "", ""
    programs = sorted(LATEST.programs.items())
    for look in (_of_sees, _of_tiles, _of_positions, _of_keys):
        if (found := look(programs))[0]:
            return found
    return "", ""


Programs = list[tuple[tuple[int, ...], Program]]


def _of_sees(programs: Programs) -> tuple[str, str | None]:
    for _, program in programs:
        for position, found, right in program.sees:
            said = f"`sees` lets the query at position {position} see {_keys(found)} of its tile"
            rule = SEES_RULE if LATEST.case.spec.window is None else WINDOW_RULE
            return f"{said}; it sees {_keys(right)}", rule
    return "", ""


def _keys(keys: list[int]) -> str:
    if not keys:
        return "no key"
    if len(keys) == 1:
        return f"key {keys[0]}"
    if keys == list(range(keys[0], keys[-1] + 1)):
        return f"keys {keys[0]} to {keys[-1]}"
    return f"keys {', '.join(map(str, keys[:6]))}{', ...' if len(keys) > 6 else ''}"


def _of_tiles(programs: Programs) -> tuple[str, str | None]:
    """Queries that no program has."""
    launch = next((one for one in LATEST.seen.launches if "TOKENS" in one.arguments), None)  # type: ignore[union-attr]
    if launch is None or len(LATEST.seen.launches) > 1:  # type: ignore[union-attr]
        return "", ""
    size, queries = int(launch.arguments["TOKENS"]), list(LATEST.case.queries)
    tiles, needed = (
        launch.programs // LATEST.case.kv_heads,
        sum(-(-count // size) for count in queries),
    )
    if tiles < needed:
        gives = f"The grid has {tiles} tile{'s' * (tiles != 1)} of {size} queries"
        return f"{gives}; chunks of {queries} queries fill {needed}", TILES_RULE
    had = {token for _, program in programs for token in program.tokens}
    lost = set(range(sum(queries))) - had
    if not lost or not LATEST.is_over:
        return "", ""
    seq, place = _sequence_of(min(lost))
    rule = COUNTED_RULE if _by_the_batch(queries, size) == lost else None
    first = f"query {place} of sequence {seq}"
    if len(lost) == 1:
        return f"No program has {first}", rule
    return f"No program has {len(lost)} of {sum(queries)} queries: {first} is the first", rule


def _by_the_batch(queries: list[int], size: int) -> set[int]:
    """The rows of q that no tile has if tile number t of the grid begins at query t * size."""
    begins = np.cumsum([0, *queries])
    lost = set()
    for i, count in enumerate(queries):
        first, behind = int(begins[i]) // size + i, int(begins[i + 1]) // size + i + 1
        had = {j for tile in range(first, behind) for j in range(tile * size, (tile + 1) * size)}
        lost |= {int(begins[i]) + j for j in range(count) if j not in had}
    return lost


def _sequence_of(token: int) -> tuple[int, int]:
    """(sequence, which of its queries) of a row of q."""
    for seq, count in enumerate(LATEST.case.queries):
        if token < count:
            return seq, token
        token -= count
    raise ValueError("a row behind the last query")


def _position_of(token: int) -> int:
    seq, place = _sequence_of(token)
    return int(LATEST.case.lens[seq] - LATEST.case.queries[seq] + place)


def _of_positions(programs: Programs) -> tuple[str, str | None]:
    for _, program in programs:
        for token, position in program.positions.items():
            if token < sum(LATEST.case.queries) and position != (right := _position_of(token)):
                seq, place = _sequence_of(token)
                of = f"Query {place} of {LATEST.case.queries[seq]} of sequence {seq}"
                have = f"which has {LATEST.case.lens[seq]} keys"
                return f"{of}, {have}, stands at position {right}; attend_keys gets {position}", (
                    POSITION_RULE
                )
    return "", ""


def _of_keys(programs: Programs) -> tuple[str, str | None]:
    """Ranges of keys that hold too much without a mask, or too little."""
    window = LATEST.case.spec.window
    for who, program in programs:
        if not program.tokens or not (program.masked or program.unmasked):
            continue
        positions = [_position_of(token) for token in program.tokens]
        first, last = min(positions), max(positions)
        lowest = 0 if window is None else max(0, first - window + 1)
        of = f"positions {first} to {last}" if first < last else f"position {first}"
        queries = f"queries at {of}" if len(positions) > 1 else f"query at {of}"
        for start, end in program.unmasked:
            if end > first + 1:
                takes = f"attend_keys takes keys {start} to {end - 1} without CAUSAL"
                sees = f"the {queries}, of which the first sees {_keys(list(range(lowest, first + 1)))}"
                return f"{takes} for {sees}", UNMASKED_RULE
        taken = _union([*program.masked, *program.unmasked])
        needed = set(range(lowest, last + 1))
        if needed - taken:
            ranges = [*program.unmasked, *program.masked]
            given = " and ".join(_keys(list(range(*one))) for one in ranges)
            problem = f"Program {who} gives attend_keys {given} for the {queries}"
            rule = SEES_RULE if window is None else WINDOW_RULE
            return f"{problem}, which need {_keys(sorted(needed))}", rule
    return "", ""


def _union(ranges: Iterable[tuple[int, int]]) -> set[int]:
    return {key for start, end in ranges for key in range(start, end)}
