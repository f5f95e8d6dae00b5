"""Lab 17: steps on fixed memory, as a CUDA graph replays them, and a loop that runs one step ahead."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from yaie.core.batch import AttentionBatch, StepOutcome, StepPlan
    from yaie.core.step import Ints, StepInput


# ANCHOR: size
class Size(NamedTuple):
    """What a padded step has room for: `decodes` rows of single tokens, and behind them `tokens` rows
    for the tokens of up to `chunks` chunks. A size for decodes alone has no chunks."""

    decodes: int
    tokens: int = 0
    chunks: int = 0

    @property
    def rows(self) -> int:
        """Tokens that the model computes."""
        return self.decodes + self.tokens

    @property
    def sequences(self) -> int:
        """Rows of the block tables that attention reads."""
        return self.decodes + self.chunks


# ANCHOR_END: size


# ANCHOR: device
class Event(Protocol):
    """A place in the device's queue."""

    def record(self) -> None:
        """Put the event behind everything that has been queued."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has come to it."""
        ...


class Graph(Protocol):
    """Kernels with their arguments, recorded once."""

    def replay(self) -> None:
        """Queue all of them, with one call. They read and write the addresses that were recorded."""
        ...


class Device(Protocol):
    """Given to lab 17: what it needs of `torch.cuda`. On a CPU without a queue, and in the grader on a
    queue and graphs that check their rules.

    where: the device of tensors that are made for it.
    """

    @property
    def where(self) -> "torch.device": ...

    def pinned(self, *shape: int, dtype: "torch.dtype") -> "Tensor":
        """Memory of the host that copies with `non_blocking=True` go to and from. What is in it is
        undefined. Each call gives other memory; a tensor that is dropped is given out again only when
        the queued copies from it have been made. Not in a capture."""
        ...

    def event(self) -> Event:
        """A new event."""
        ...

    def graph(self) -> Graph:
        """A graph that holds nothing yet."""
        ...

    def pool(self) -> Any:
        """A new pool of memory, for captures that may share it."""
        ...

    def capture(self, graph: Graph, pool: Any) -> AbstractContextManager[None]:
        """Record what the body launches into `graph`; nothing of it runs. Memory comes from `pool`: what
        the body drops is used again, later in this capture or by the next one with the same pool.

        Within it the host may not wait for the device (`.item()`, `.tolist()`, a condition on a tensor),
        and not copy from memory that is not pinned. Raises what the body raises.
        """
        ...

    def alias(self, tensor: "Tensor") -> "Tensor":
        """The same memory as a tensor that does not keep it from being used again."""
        ...


# ANCHOR_END: device


# ANCHOR: step_machine
class StepMachine(Protocol):
    """Given to lab 17: the model, the sampler, and what a worker keeps of each seat on the device.

    nobody: a seat that no request has, for padding. max_model_len: a bound on every sequence.
    tables: [seats + 1, max_blocks] int32, block tables. last_tokens: [seats + 1] int64, the token that
    each seat drew last. num_known: [seats] int32 on the host, how many tokens of each seat control has
    sent; the token at a position from there on was drawn by the device, and may be unread.
    """

    @property
    def nobody(self) -> int: ...

    @property
    def max_model_len(self) -> int: ...

    @property
    def tables(self) -> "Tensor": ...

    @property
    def last_tokens(self) -> "Tensor": ...

    @property
    def num_known(self) -> "Ints": ...

    def slots(self, step: "StepInput") -> "Ints":
        """[T] int32: where in the pool each token of a step goes. Asked on the host."""
        ...

    def token_ids(self, step: "StepInput") -> "Ints":
        """[T] int32: the tokens of a step, as far as control has sent them. In place of one that only
        the device knows stands `~seat`, which is negative: it is the last token of that seat."""
        ...

    def extend_tables(self, step: "StepInput") -> None:
        """Enter all new blocks of a step into `tables`, by a launch of its own."""
        ...

    def hidden(self, token_ids: "Tensor", batch: "AttentionBatch") -> "Tensor":
        """The model's hidden states [T, hidden] of tokens [T] int64. Stores keys and values."""
        ...

    def logits(self, hidden: "Tensor") -> "Tensor":
        """Logits [n, vocab] of hidden states [n, hidden]."""
        ...

    def sample(self, logits: "Tensor", seats: "Tensor") -> "Tensor":
        """Draw for these seats [n] int64: [n] int64, -1 for a row that is not finite."""
        ...

    def count_draws(self, seats: "Tensor") -> None:
        """Each of these seats [n] int64 has drawn a token: the next draw is another one."""
        ...


# ANCHOR_END: step_machine


# ANCHOR: graph_runner
class GraphRunner(Protocol):
    """Lab 17. Carries out steps, padded to one of a few sizes, as graphs or launch by launch."""

    @property
    def sizes(self) -> "Sequence[Size]":
        """The sizes there are, in ascending order of rows."""
        ...

    def prepare(self) -> "Iterator[Size]":
        """Make each size ready, the largest first; yields a size when it is."""
        ...

    def takes(self, step: "StepInput") -> bool:
        """Whether there is a size for a step of at least one seat. New blocks, moves of blocks, masks
        and what a step is asked for besides are no reason to refuse."""
        ...

    def draws(self, step: "StepInput") -> bool:
        """Whether `draw` may follow: the step has a size without chunks, and every seat draws."""
        ...

    def forward(self, step: "StepInput") -> "Tensor":
        """Queue a step that it takes, up to the hidden states [T, hidden] of its tokens, in their order.
        They hold until the next step. `step` is read only."""
        ...

    def draw(self, n: int) -> "Tensor":
        """Queue the draws [n] int64 of the n seats of the last step, for which `draws` was true. The
        seats' last tokens are the drawn ones then. They hold until the next step."""
        ...


# ANCHOR_END: graph_runner


# ANCHOR: to_host
class ToHost(Protocol):
    """Lab 17. A tensor of the device on its way to the host."""

    def get(self) -> "Tensor":
        """The tensor on the host, once it has arrived. Steps that are queued behind it are not waited
        for."""
        ...


# ANCHOR_END: to_host

MakeToHost = Callable[["Tensor"], ToHost]


# ANCHOR: overlap
class SentStep(Protocol):
    """A plan that was sent to a worker."""

    def send_masks(self) -> None:
        """Let the constrained requests of the step draw: all their tokens before are known. Twice is
        harmless."""
        ...

    def result(self) -> "StepOutcome":
        """Wait until the step has ended, and take over what came out."""
        ...


class StepSender(Protocol):
    """Given to lab 17. Sends plans to a worker, which carries them out in the order of the calls."""

    def execute(self, plan: "StepPlan") -> SentStep:
        """Begin to carry out a plan; an empty one ends at once. Returns before its tokens are known."""
        ...


# ANCHOR_END: overlap
