"""What a request holds where every layer sees a window of a text: `Held`.

Blocks that no token to come sees go back to the pool (`yaie.engine.windows`). So a request holds its
window and what steps compute, and a text may be longer than the pool.
"""

from dataclasses import dataclass

from yaie.core.config import EngineConfig
from yaie.models.adapter import ModelAdapter


@dataclass(frozen=True, slots=True)
class Held:
    """window: keys that a query sees at most. block_size: tokens of a block. most: blocks that a request
    holds at once, at most. whole: blocks of the longest text. kept: why blocks stay all the same; "" if
    they go back.
    """

    window: int
    block_size: int
    most: int
    whole: int
    kept: str = ""

    def told(self, bytes_per_block: int) -> str:
        """In words, for the start."""
        if self.kept:
            return f"{self.window:,} keys a query; all blocks are kept: {self.kept}"
        mib = bytes_per_block / 2**20
        return (
            f"{self.window:,} keys a query: blocks behind them go back, and a request holds at most "
            f"{self.most:,} ({self.most * mib:,.1f} MiB) of the {self.whole:,} "
            f"({self.whole * mib:,.1f} MiB) of the longest text"
        )

    def first_seen(self, position: int) -> int:
        """The first block of a text that a token at this position sees."""
        return max(0, position - self.window + 1) // self.block_size

    def text_tokens(self, num_blocks: int) -> int:
        """The longest text that a pool of so many blocks can serve. One of them is blank."""
        left = num_blocks - 1
        return (self.whole if left >= self.most else left) * self.block_size


def held_of(
    config: EngineConfig,
    adapter: ModelAdapter,
    max_length: int,
    *,
    has_head: bool = False,
    kept: str = "",
) -> Held | None:
    """None where a layer sees all of a text, or no text is longer than the window.

    max_length: of a text. has_head: whether a head drafts, which has a layer of its own. kept: why every
    block is needed.
    """
    window = adapter.widest_window
    if window is None or window >= max_length or adapter.state_layers:
        return None
    if has_head:
        kept = "the head that drafts sees all of a text"
    elif config.preemption == "swap":
        kept = "preemption is swap, which moves texts whole"
    size, device = config.block_size, adapter.device.type
    budget = config.step_tokens(device)
    if not config.chunked_prefill:
        budget = max(budget, max_length)
    is_overlapped = config.overlap == "on" or (config.overlap == "auto" and device == "cuda")
    unsettled = 2 * budget if is_overlapped else budget
    whole = -(-max_length // size)
    most = min(whole, -(-(window - 1 + unsettled) // size) + 1)
    return Held(window, size, most, whole, kept)
