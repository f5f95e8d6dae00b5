"""What a request holds where layers see a window of a text: `Held`.

Blocks that no token to come sees go back to the pool (`yaie.engine.windows`). If every layer has a
window, a request holds its window and what steps compute, and a text may be longer than the pool. If
some layers see all of a text, each of the two groups of layers has blocks of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from yaie.core.config import EngineConfig
from yaie.models.adapter import ModelAdapter

GATHERED = 8
"""Blocks behind the window that go back together, while others are free: a table with another entry is
sent to the worker whole."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a request holds in the layers that have a window.

    window: keys that a query sees at most. block_size: tokens of a block. most: blocks that a request
    holds at once, at most. whole: blocks of the longest text. kept: why blocks stay all the same; "" if
    they go back.

    full, windowed: by their indices, the layers that see all of a text, and the others; both are empty
    if every layer has a window. unsettled: tokens of all requests that steps compute at once.
    num_blocks: how many the layers with a window have, if that is settled.
    """

    window: int
    block_size: int
    most: int
    whole: int
    kept: str = ""
    full: tuple[int, ...] = ()
    windowed: tuple[int, ...] = ()
    unsettled: int = 0
    num_blocks: int | None = None

    @property
    def settled(self) -> int:
        """Blocks that a request holds behind the tokens that steps compute, at most."""
        return min(self.whole, -(-(self.window - 1) // self.block_size) + 1 + GATHERED)

    def told(self, bytes_per_block: int, where: str = "") -> str:
        """In words, for the start; of a model all of whose layers have a window, or with `kept`. where:
        on which rank a block takes so much, if there are several."""
        if self.kept:
            return f"{self.window:,} keys a query{self._where}; all blocks are kept: {self.kept}"
        mib = bytes_per_block / 2**20
        return (
            f"{self.window:,} keys a query: blocks behind them go back, and a request holds at most "
            f"{self.most:,} ({self.most * mib:,.1f} MiB{where}) of the {self.whole:,} "
            f"({self.whole * mib:,.1f} MiB{where}) of the longest text"
        )

    def told_of_groups(
        self, full: tuple[int, int], windowed: tuple[int, int], where: str = ""
    ) -> str:
        """In words, for the start. full, windowed: how many blocks the layers have that see all of a
        text, and the others, and the bytes of one. where: see `told`."""

        def told(blocks: tuple[int, int]) -> str:
            count, each = blocks
            return f"{count:,} blocks ({count * each / 2**20:,.1f} MiB{where})"

        saved = (full[0] - windowed[0]) * windowed[1]
        more = f"; {full[0]:,} for all would take {saved / 2**20:,.1f} MiB more"
        return (
            f"{self.window:,} keys a query{self._where}: blocks behind them go back. The others have "
            f"{told(full)}, these {told(windowed)}{more if saved > 0 else ''}"
        )

    @property
    def _where(self) -> str:
        if not self.full:
            return ""
        return f" in {len(self.windowed)} of {len(self.full) + len(self.windowed)} layers"

    def usages(self, cache: Mapping[str, int]) -> dict[str, float]:
        """Shares of blocks that requests use, where there are two groups: of the layers that see all of
        a text, of those with a window, and, as kv_usage, of the fuller ones, which a request waits for.

        cache: `GroupedCache.stats`.
        """
        if not self.full:
            return {}
        behind, total = cache["windowed_used_blocks"], cache["windowed_total_blocks"]
        windowed = behind / total
        full = (cache["used_blocks"] - behind) / (cache["total_blocks"] - total)
        kv_usage = max(full, windowed)
        return {"kv_usage": kv_usage, "full_kv_usage": full, "windowed_kv_usage": windowed}

    def first_seen(self, position: int) -> int:
        """The first block of a text that a token at this position sees."""
        return max(0, position - self.window + 1) // self.block_size

    def text_tokens(self, num_blocks: int) -> int:
        """The longest text that a pool of so many blocks can serve. One of them is blank."""
        left = num_blocks - 1
        return (self.whole if left >= self.most else left) * self.block_size

    def num_texts(self, num_blocks: int) -> int:
        """How many of the longest texts the windowed group can serve at once with so many blocks: all
        of them share what steps compute."""
        left = num_blocks - 1
        beside = left - -(-self.unsettled // self.block_size)
        return max(left // self.most, beside // self.settled)


def held_of(
    config: EngineConfig,
    adapter: ModelAdapter,
    max_length: int,
    *,
    has_head: bool = False,
    kept: str = "",
) -> Held | None:
    """None where no text is longer than a layer's window.

    max_length: of a text. has_head: whether a head drafts, which has a layer of its own. kept: why every
    block is needed.
    """
    windows = [
        None if window is None or window >= max_length else window for window in adapter.windows
    ]
    narrow = [window for window in windows if window is not None]
    if not narrow or adapter.state_layers:
        return None
    window, has_groups = max(narrow), len(narrow) < len(windows)
    if has_head:
        kept = "the head that drafts sees all of a text"
    elif config.preemption == "swap":
        kept = "preemption is swap, which moves texts whole"
    elif has_groups and config.pipeline_parallel > 1:
        kept = "the stages of a pipeline have one table for all layers"
    size, device = config.block_size, adapter.device.type
    budget = config.step_tokens(device)
    if not config.chunked_prefill:
        budget = max(budget, max_length)
    is_overlapped = config.overlap == "on" or (config.overlap == "auto" and device == "cuda")
    unsettled = 2 * budget if is_overlapped else budget
    whole = -(-max_length // size)
    most = min(whole, -(-(window - 1 + unsettled) // size) + 1)
    held = Held(window, size, most, whole, kept)
    if not has_groups:
        return held
    layers = range(len(windows))
    return replace(
        held,
        full=tuple(layer for layer in layers if windows[layer] is None),
        windowed=tuple(layer for layer in layers if windows[layer] is not None),
        unsettled=unsettled,
    )
