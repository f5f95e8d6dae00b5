"""Lab 20: one model on several ranks. A rank is a process with a device of its own."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch import Tensor


# ANCHOR: link
class Transfer(Protocol):
    """Given. A tensor on its way. Begun transfers may go on in any order until they are waited for.

    It keeps its tensor alive, so keep the transfer until you have waited for it.
    """

    def wait(self) -> None:
        """Return once the tensor may be used again: it has been sent, or it has arrived. A further call
        returns at once.

        Raises RankError if the other rank has died, or has not come within the link's time limit.
        """
        ...


class Link(Protocol):
    """Given. The way from this rank to the others of its group, point to point.

    rank: of this process, 0 to size - 1. size: ranks in the group.
    Between two ranks tensors arrive in the order in which they were sent. A send may be over only when
    it is received: begin what the other rank waits for before you wait yourself.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def send(self, tensor: "Tensor", to: int) -> Transfer:
        """Begin to send a contiguous tensor, which must not change before `wait`."""
        ...

    def receive(self, into: "Tensor", source: int) -> Transfer:
        """Begin to fill a contiguous tensor, which has the shape and dtype that `source` sends."""
        ...


# ANCHOR_END: link


# ANCHOR: collectives
class Collectives(Protocol):
    """What all ranks of a group do together. Every rank calls the same methods in the same order, with
    tensors of the same shape and dtype.

    rank, size: of the group.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def all_reduce(self, x: "Tensor") -> "Tensor":
        """The sum over all ranks of x, of any shape, on each of them: the same bits everywhere.

        In the dtype of x. May write to x, and may return it. Each rank sends 2 * (size - 1) / size of
        the bytes of x, up to rounding: a reduce-scatter, then an all-gather (Patarasuk and Yuan 2009).
        """
        ...

    def all_gather(self, x: "Tensor") -> "Tensor":
        """[size, *x.shape]: x of every rank, in the order of the ranks, on each of them.

        Each rank sends size - 1 times the bytes of x.
        """
        ...


class Ring(Collectives, Protocol):
    """Lab 20: the collectives, by sends and receives between neighbours. Made as Ring(link).

    Chunk r of a vector of n numbers is `share(n, r, size)`. When a method returns, all that it sent has
    been sent.
    """

    def reduce_scatter(self, x: "Tensor") -> None:
        """Change chunk `rank` of x [n], contiguous, into its sum over all ranks.

        The rest of x may hold anything afterwards. Each rank sends (size - 1) / size of the bytes of x,
        up to rounding.
        """
        ...

    def gather_chunks(self, x: "Tensor") -> None:
        """Fill x [n], contiguous: chunk r with what rank r has in it. Chunk `rank` stays as it is.

        Each rank sends (size - 1) / size of the bytes of x, up to rounding.
        """
        ...


# ANCHOR_END: collectives


# ANCHOR: shares
class Shares(Protocol):
    """Lab 20. Which part of a model a rank holds."""

    def share(self, total: int, rank: int, size: int) -> range:
        """A rank's part of `total` rows, columns or layers: consecutive, in the order of the ranks.

        Parts differ by at most one, and the larger ones come first. Together they are range(total).
        """
        ...

    def share_heads(
        self, num_heads: int, num_kv_heads: int, rank: int, size: int
    ) -> tuple[range, range]:
        """(query heads, KV heads) of a rank. The KV heads are just those that its query heads read.

        With fewer KV heads than ranks, several ranks hold the same one. Raises ValueError unless size
        divides num_heads, and divides num_kv_heads or is a multiple of it; its message always names
        num_heads, num_kv_heads and size.
        """
        ...

    def qkv_rows(
        self, num_heads: int, num_kv_heads: int, head_dim: int, rank: int, size: int
    ) -> tuple[range, range, range]:
        """(rows of queries, of keys, of values) that a rank holds of a weight with all three one above
        the other, [(num_heads + 2 * num_kv_heads) * head_dim, in]. Raises as `share_heads`."""
        ...


# ANCHOR_END: shares


# ANCHOR: parallel
class RowParallel(Protocol):
    """Lab 20. A product whose input is split over the ranks: y = sum of x_r @ W_r.T, + bias once.

    Made as RowParallel(product, bias, group). product: x [rows, in / size] to [rows, out], this rank's
    part of the sum, without bias. bias: [out] or None, the same on every rank. Its numbers may be
    loaded after this, in place.
    """

    def __call__(self, x: "Tensor") -> "Tensor":
        """x: this rank's columns of the input. Returns [rows, out], the same bits on every rank."""
        ...


class VocabEmbedding(Protocol):
    """Lab 20. An embedding table whose rows are split over the ranks.

    Made as VocabEmbedding(table, first, group). table: [held, hidden] with held > 0, the rows of the
    tokens first, first + 1, ... first + held - 1. Its numbers may be loaded after this, in place.
    """

    def __call__(self, token_ids: "Tensor") -> "Tensor":
        """token_ids: [T] int64, of the whole vocabulary. Returns [T, hidden], the same on every rank.

        Rows of other tokens do not matter, even if they hold NaN or infinity.
        """
        ...


class VocabLogits(Protocol):
    """Lab 20. Logits whose columns are split over the ranks by `share(vocab_size, rank, size)`.

    Made as VocabLogits(vocab_size, group). vocab_size: at least group.size.
    """

    def gather(self, logits: "Tensor") -> "Tensor":
        """logits: [rows, held], this rank's. Returns [rows, vocab_size], in the order of the vocabulary,
        freshly allocated, the same on every rank."""
        ...

    def arg_max(self, logits: "Tensor") -> "Tensor":
        """The token with the highest logit of each row, the lowest one of several: [rows] int64, on
        every rank. -1 for a row whose highest logit is not finite, or that holds NaN on any rank.
        Sends O(rows) numbers, whatever the vocabulary."""
        ...

    def draw(self, logits: "Tensor", noise: "Callable[[range], Tensor]") -> "Tensor":
        """One token for each row, drawn with the probabilities softmax(logits): [rows] int64, the same
        on every rank. Sends as much as `arg_max`, and -1 means the same.

        noise: tokens to their standard Gumbel noise [rows, len(tokens)] float32, the same on every rank
        for the same token. The token with the highest sum of logit and noise is the draw. Sums are not
        rounded to a narrower dtype of the logits.
        """
        ...


# ANCHOR_END: parallel


# ANCHOR: pipeline
class Pipeline(Protocol):
    """Lab 20. The layers of a model on consecutive ranks of a group, its stages.

    Made as Pipeline(link). Stage s holds the layers `share(num_layers, s, link.size)`.
    """

    def microbatches(self, num_tokens: Sequence[int], count: int) -> list[range]:
        """Cut the rows of a step into at most `count` runs of them in order.

        num_tokens: of each row, at least 1. count: at least 1. No run is empty, so without rows there
        are none. The largest number of tokens in a run is as small as it can be.
        """
        ...

    def run(
        self,
        num_tokens: Sequence[int],
        compute: "Callable[[int, Tensor | None], Tensor]",
        empty: "Callable[[int], Tensor]",
    ) -> "list[Tensor]":
        """Pass microbatches through this stage, in order; each has so many tokens.

        compute: (index of the microbatch, what the stage before sent for it, None in the first stage) to
        what goes to the next stage, a contiguous tensor that `compute` does not change later. empty:
        (tokens) to an uninitialised tensor as it is sent between stages. Returns the results of
        `compute` in the last stage, and nothing in the others.

        Stages work at the same time: if a call of `compute` takes one step, and a transfer one from when
        both of its ranks have begun it, the last of S stages has computed n microbatches after
        n + 2 (S - 1) steps. A result is sent once. When `run` returns, all it sent has been sent.
        """
        ...


# ANCHOR_END: pipeline
