"""Whether the tiles of a launch hold the rows and the heads that the kernel is asked for."""

from typing import Any

from grader.kit.triton_watch import Launch


def told_of(launch: Launch) -> str:
    """What the tiles do not hold, with the launch's numbers; "" if they hold all."""
    given: dict[str, Any] = launch.arguments
    found = [
        *_row(given, launch.kernel),
        *_heads(given, launch, "heads", "HEADS", "q"),
        *_heads(given, launch, "kv_heads", "KV_HEADS", "k"),
    ]
    if given.keys() >= {"HALF", "BLOCK_HALF"} and given["BLOCK_HALF"] < given["HALF"]:
        found.append(f"BLOCK_HALF={given['BLOCK_HALF']} for HALF={given['HALF']} pairs of a head")
    if given.keys() >= {"SIZE", "BLOCK"} and launch.grid[1] * given["BLOCK"] < given["SIZE"]:
        tiles = f"{launch.grid[1]} programs a token with BLOCK={given['BLOCK']}"
        found.append(f"{tiles} for rows of SIZE={given['SIZE']}")
    if not found:
        return ""
    return f"{launch.kernel} was launched with {', and '.join(found)}: that is too little."


def _row(given: dict[str, Any], kernel: str) -> list[str]:
    """Of a norm that has a row in one tile."""
    if (
        "long" in kernel
        or not given.keys() >= {"D", "BLOCK", "num_rows"}
        or given["BLOCK"] >= given["D"]
    ):
        return []
    return [f"BLOCK={given['BLOCK']} for rows of D={given['D']}"]


def _heads(given: dict[str, Any], launch: Launch, heads: str, tile: str, name: str) -> list[str]:
    if not given.keys() >= {heads, tile} or launch.grid[1] * given[tile] >= given[heads]:
        return []
    tiles = "1 tile" if launch.grid[1] == 1 else f"{launch.grid[1]} tiles"
    return [f"{tiles} a token and {tile}={given[tile]} for {given[heads]} heads of {name}"]
