"""Which entry of a table, or which row of q, a kernel reads that is none.

By what `locate` and `load_rows` were given, see `traced`.
"""

import numpy as np

from grader.kit import Fault
from grader.suites.triton_paged_attention.traced import LATEST, lanes, one

TABLE_WHY = (
    "A table has one entry for each block, not for each position: position p needs entry "
    "p // block_size. What lies behind the entries of a sequence is not looked up: mask positions "
    "behind its last key."
)
EACH_WHY = (
    "Entry p is looked up for position p. A table has one entry for each block: position p needs entry "
    "p // block_size."
)
SPARE_WHY = "In prefill, a tile that has no queries has no keys either."
BEFORE_TABLE_WHY = (
    "An entry before the first was looked up. No key has a position below 0, "
    "however long the window is."
)


def explain(fault: Fault) -> None:
    """Tables and queries are read outside for reasons of their own."""
    if " of block_tables" in fault.problem:
        fault.why = BEFORE_TABLE_WHY if "element -" in fault.problem else _why_of_table(fault)
    elif " of q, " in fault.problem and (found := _why_of_query(fault)):
        fault.why = found


def _why_of_table(fault: Fault) -> str:
    try:
        return _fitting_table(fault) or TABLE_WHY
    except Exception:  # noqa: BLE001, a `locate` of another make
        return TABLE_WHY


def _fitting_table(fault: Fault) -> str:
    given, tables = LATEST.lookup, LATEST.case.pool.block_tables
    offsets, active = np.ravel(fault.offsets), np.ravel(fault.active)
    keys, end, size = lanes(given["keys"]).ravel(), one(given["end"]), one(given["BLOCK_SIZE"])
    begin = (one(given["table"]) - tables.data_ptr()) // tables.element_size()
    entries = offsets - begin
    program = list(LATEST.programs.values())[-1]
    if bool((entries == keys)[active].all()) and size > 1:
        return EACH_WHY
    if not bool((entries == keys // size)[active].all()):
        return ""
    if bool((keys >= end)[active].any()):
        return (
            f"`locate` looks up positions from end = {end} on: these lanes have no key, and need a "
            "mask."
        )
    if LATEST.case.queries is not None and program.real is not None and not program.real.any():
        return f"No row of this tile is real, and it takes the keys up to {end}. {SPARE_WHY}"
    return ""


def _why_of_query(fault: Fault) -> str:
    """Of load_rows: whether its rows are wrong, where it looks for them, or its lanes behind a head."""
    try:
        begins = np.asarray(fault.offsets)[:, 0]
        given, q = LATEST.rows, LATEST.case.q
        real = lanes(given["real"]).astype(bool).ravel()
        index, heads = (
            np.broadcast_to(lanes(given[name]).ravel(), real.shape)[real]
            for name in ("index", "heads")
        )
    except Exception:  # noqa: BLE001, a `load_rows` of another make
        return ""
    for token, head in zip(index.tolist(), heads.tolist(), strict=True):
        if not 0 <= token < q.shape[0] or not 0 <= head < q.shape[1]:
            there = f"q has {q.shape[0]} tokens, each in {q.shape[1]} head{'s' * (q.shape[1] > 1)}"
            return f"load_rows gets a real row for head {head} of token {token}; {there}."
    for row, token, head in zip(np.flatnonzero(real), index, heads, strict=True):
        if begins[row] != (right := int(token) * q.stride(0) + int(head) * q.stride(1)):
            where = f"{token} * {q.stride(0)} + {head} * {q.stride(1)} = {right}"
            return (
                f"Head {head} of token {token} begins at token * stride + head * D = {where}; load_rows "
                f"reads from {begins[row]} on."
            )
    if one(given["DIMS"]) > q.shape[2]:
        return (
            f"The rows that load_rows gets are right. A head has D = {q.shape[2]} numbers, and its tile "
            f"{one(given['DIMS'])}: lanes from {q.shape[2]} on need a mask."
        )
    return ""
