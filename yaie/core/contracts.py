"""The contract of every part: what the engine calls, and all that it calls.

A learner's part and the reference satisfy the same `Protocol`; a grader grades through it and through
nothing private. Shapes are written `[n, d]`; T is the number of query tokens in a step's flat batch.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from yaie.core.batch import AttentionBatch, AttentionSpec, Rotation, SamplingBatch, StepPlan
    from yaie.core.errors import InvalidRequestError
    from yaie.core.params import SamplingParams
    from yaie.core.request import FinishReason, Request, RequestOutput


# ANCHOR: sampler
class Sampler(Protocol):
    """Lab 1. Draws one token for each row of a batch, in one call, on the logits' device."""

    def sample(self, logits: "Tensor", batch: "SamplingBatch") -> "Tensor":
        """Draw from `logits` [n, vocab] (float32, may be overwritten); returns [n] int64.

        A row that holds NaN or +inf, or nothing but -inf, gives -1 and disturbs no other row.
        A row's draw depends on its logits, its parameters, its seed and its step, on nothing else.
        """
        ...


# ANCHOR_END: sampler


# ANCHOR: transformer_ops
class TransformerOps(Protocol):
    """Lab 2. The operations of a decoder layer. Math in float32, results in the input's dtype."""

    def rms_norm(self, x: "Tensor", weight: "Tensor", eps: float) -> "Tensor":
        """x / sqrt(mean(x**2) + eps) * weight over the last dimension. x: [..., d], weight: [d]."""
        ...

    def fused_add_rms_norm(
        self, x: "Tensor", residual: "Tensor", weight: "Tensor", eps: float
    ) -> "tuple[Tensor, Tensor]":
        """Returns (rms_norm(x + residual), x + residual). May reuse the inputs' memory."""
        ...

    def rope(
        self, q: "Tensor", k: "Tensor", positions: "Tensor", cos: "Tensor", sin: "Tensor"
    ) -> "tuple[Tensor, Tensor]":
        """Rotate q [T, heads, d] and k [T, kv_heads, d] to `positions` [T] (int64).

        cos, sin: [max_positions, rotary_dim / 2] float32. Dimension i of the first half is paired with
        dimension i of the second (the layout of Hugging Face checkpoints); dimensions from rotary_dim
        on stay as they are.
        """
        ...

    def silu_mul(self, x: "Tensor") -> "Tensor":
        """silu(gate) * up, for x [..., 2 * d] = [gate | up]. Returns [..., d]."""
        ...

    def causal_mask(
        self, kv_lens: "Tensor", tq: int, tk: int, window: int | None, dtype: "torch.dtype"
    ) -> "Tensor":
        """[n, tq, tk] of `dtype`, added to attention scores: 0 where a query sees a key, else -inf.

        kv_lens: [n] int, the real keys of each row, at least tq; the rest of tk is padding. The last of
        the tq queries of row i stands at position kv_lens[i] - 1, and sees the `window` keys that end
        with its own position, or all before it if that is None.
        """
        ...

    def attention(
        self, q: "Tensor", k: "Tensor", v: "Tensor", mask: "Tensor", spec: "AttentionSpec"
    ) -> "Tensor":
        """Grouped-query attention over padded sequences. Returns [n, tq, heads, d].

        q: [n, tq, heads, d]; k, v: [n, tk, kv_heads, d]; heads is a multiple of kv_heads. mask: from
        `causal_mask`, with the window of `spec`. Keys and values that it hides are finite.
        """
        ...


# ANCHOR_END: transformer_ops


# ANCHOR: block_manager
class BlockManager(Protocol):
    """Lab 3. Owns the blocks of the device pool and of the host pool, and who holds which.

    A block is free or has a reference count of at least 1: one for each block table it stands in, and
    one for each `hold`. Only `free`, `release`, `replace` and `swap_out` make it free again.
    """

    num_blocks: int
    block_size: int
    num_host_blocks: int

    @property
    def num_free(self) -> int:
        """Device blocks that nobody holds. O(1)."""
        ...

    @property
    def num_free_host(self) -> int:
        """Host blocks that nobody holds. O(1)."""
        ...

    def allocate(self, request_id: str, num_blocks: int) -> list[int]:
        """Append `num_blocks` fresh blocks to the request's table (made if it has none).

        All or nothing: raises OutOfBlocksError and changes nothing if too few are free.
        """
        ...

    def share(self, request_id: str, block_ids: Sequence[int]) -> None:
        """Append blocks that are already held to the request's table, one more reference each.

        Raises BlockStateError if one of them is free.
        """
        ...

    def free(self, request_id: str) -> None:
        """Drop the request's table and its references. Raises BlockStateError if it has none."""
        ...

    def hold(self, block_ids: Sequence[int]) -> None:
        """Add a reference that stands in no table (the radix tree's). Raises on a free block."""
        ...

    def release(self, block_ids: Sequence[int]) -> None:
        """Give back references taken by `hold`. Raises BlockStateError on one not taken."""
        ...

    def ref_count(self, block_id: int) -> int:
        """References to a device block; 0 if free."""
        ...

    def get_physical_blocks(self, request_id: str) -> list[int]:
        """The request's block table; [] if it has none. Callers only read it.

        `allocate` and `share` grow the same list object; any other change makes a new one.
        """
        ...

    def replace(self, request_id: str, index: int, block_ids: Sequence[int]) -> None:
        """Point entries index.. of a table at other, held blocks, and drop the references to the old."""
        ...

    def copy_on_write(self, request_id: str, index: int) -> tuple[int, int] | None:
        """Make entry `index` of a table safe to write.

        None if the request is its only holder. Otherwise it gets a fresh block in the table and
        returns (old, fresh), which the caller must have copied before anything is written.
        Raises OutOfBlocksError, with nothing changed, if none is free.
        """
        ...

    def swap_out(self, request_id: str) -> list[tuple[int, int]]:
        """Move a table to the host pool: returns (device, host) for each block, in order.

        The device references are dropped. Raises OutOfBlocksError, with nothing changed, if the host
        pool cannot take it.
        """
        ...

    def swap_in(self, request_id: str, shared: Sequence[int] = ()) -> list[tuple[int, int]]:
        """Bring a swapped-out table back: returns (host, device) for each block to copy.

        `shared` are held device blocks that already have the content of the first len(shared) entries:
        they are referenced, not copied. Raises OutOfBlocksError, with nothing changed.
        """
        ...

    def discard_swapped(self, request_id: str) -> None:
        """Free the host blocks of a swapped-out request."""
        ...

    def num_swapped_blocks(self, request_id: str) -> int:
        """Length of the request's table in the host pool; 0 if it is not swapped out."""
        ...

    def check(self) -> None:
        """Verify every invariant; raises InvariantError naming the block and what is wrong."""
        ...


# ANCHOR_END: block_manager


# ANCHOR: kv_pool
class KVPool(Protocol):
    """Lab 3. The memory: for each layer, K and V as [num_blocks, block_size, kv_heads, head_dim].

    Slot s is row s % block_size of block s // block_size.
    """

    num_blocks: int
    block_size: int

    def write(self, layer: int, k: "Tensor", v: "Tensor", slot_mapping: "Tensor") -> None:
        """Store k, v [T, kv_heads, head_dim] in the slots [T] (int64)."""
        ...

    def gather(self, layer: int, block_tables: "Tensor") -> "tuple[Tensor, Tensor]":
        """K and V of the blocks [n, m] (int) as [n, m * block_size, kv_heads, head_dim], copies."""
        ...

    def blocks(self, layer: int) -> "tuple[Tensor, Tensor]":
        """K and V of a layer as they lie in memory (kernels read these in place)."""
        ...

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy block src to block dst for each (src, dst), in every layer."""
        ...

    def swap_out(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy device blocks to host blocks for each (device, host), in every layer."""
        ...

    def swap_in(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy host blocks to device blocks for each (host, device), in every layer."""
        ...


# ANCHOR_END: kv_pool


# ANCHOR: kv_cache_manager
class KVCacheManager(Protocol):
    """Lab 3. Which request uses which blocks: tables, prefix reuse, eviction, swap, watermark.

    It is given a BlockManager and a RadixTree (None turns prefix caching off).
    """

    block_size: int

    def cached_tokens(self, request: "Request") -> int:
        """How many leading tokens a new table for this request would find cached, or 0 for one that may
        not use them (`Request.may_reuse_prefix`). Changes nothing."""
        ...

    def is_pending(self, request: "Request") -> bool:
        """Whether a request scheduled in this step computes the next block that this one lacks.

        Waiting one step then saves computing it twice, unless the request may not reuse a prefix.
        """
        ...

    def allocate(self, request: "Request", num_tokens: int, *, keep_free: int = 0) -> bool:
        """Make room for the K and V of the request's first `num_tokens` tokens.

        Evicts unreferenced cached blocks as needed. False, with nothing changed, if it cannot, or if
        taking what is missing would leave fewer than `keep_free` blocks free or evictable; a call that
        needs no block is never refused. The request has been admitted.
        A block that others hold is copied before this request writes to it.
        """
        ...

    def admit(self, request: "Request") -> int:
        """Start the request's table with the cached prefix (or its `fork_of` sibling's prompt blocks).

        One that may not reuse a prefix (`Request.may_reuse_prefix`) computes all of its tokens.
        Sets and returns `num_computed_tokens`: at most num_tokens - 1, since a step must compute at
        least one token to have logits. Sets `num_cached_tokens` too, unless the request was preempted.
        `free` undoes it.
        """
        ...

    def commit(self, request: "Request") -> None:
        """File the full blocks of the request's computed tokens in the tree, so that others find them.

        Where the tree has that prefix already, the table then points to the tree's blocks and the
        duplicates are freed.
        """
        ...

    def free(self, request: "Request", *, keep: bool = True) -> None:
        """Drop the table and whatever the request has in the host pool; harmless without either.

        Commits first unless `keep` is False (the request failed, its K and V are not to be trusted).
        """
        ...

    def swap_out(self, request: "Request") -> bool:
        """Move the table to the host pool. False, with nothing changed, if that has no room."""
        ...

    def swap_in(self, request: "Request", num_tokens: int, *, keep_free: int = 0) -> bool:
        """Bring the table back and make room for the first `num_tokens` tokens, as `allocate` does.

        False, with nothing changed, if the device pool has no room.
        """
        ...

    def block_table(self, request: "Request") -> list[int]:
        """The request's physical blocks (see BlockManager.get_physical_blocks)."""
        ...

    def slot_mapping(self, request: "Request", start: int, num_tokens: int) -> list[int]:
        """The slots of tokens [start, start + num_tokens)."""
        ...

    def take_moves(
        self,
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, int]]]:
        """(swap_out, swap_in, copies) promised since the last call; the plan carries them out."""
        ...

    def begin_step(self) -> None:
        """Called at the start of `schedule`; forgets which blocks the last step was computing."""
        ...

    def reset_prefix_cache(self) -> int:
        """Evict everything that no request uses; returns how many blocks that freed."""
        ...

    @property
    def num_available_blocks(self) -> int:
        """Blocks that are free, or cached and evictable. O(1)."""
        ...

    def stats(self) -> dict[str, int]:
        """Counters: total_blocks, free_blocks, cached_blocks (evictable), used_blocks,
        evicted_blocks (since the start)."""
        ...

    def check(self) -> None:
        """Verify the invariants of tables, tree and blocks together; raises InvariantError."""
        ...


# ANCHOR_END: kv_cache_manager


# ANCHOR: radix_tree
class RadixTree(Protocol):
    """Lab 4. A compressed trie over token ids, in steps of whole blocks, that remembers which block
    holds the K and V of each. Nodes are opaque handles to callers; they stay valid while locked."""

    block_size: int

    @property
    def num_blocks(self) -> int:
        """Blocks in the tree. O(1)."""
        ...

    @property
    def num_evictable(self) -> int:
        """Blocks in nodes that nobody has locked. O(1)."""
        ...

    def peek(self, token_ids: list[int], max_blocks: int) -> list[int]:
        """Blocks of the longest cached prefix, at most `max_blocks`. Changes nothing."""
        ...

    def match_prefix(self, token_ids: list[int], max_blocks: int) -> tuple[list[int], Any]:
        """(blocks, node) of the longest cached prefix of whole blocks, at most `max_blocks`.

        Splits a node in whose middle the match ends, so that `node` ends where the match does; it is
        the root if nothing matches. Marks the path as recently used.
        """
        ...

    def insert(self, token_ids: list[int], block_ids: Sequence[int]) -> tuple[int, Any]:
        """File len(block_ids) blocks of token_ids; returns (how many were there already, node).

        The tree keeps its own blocks for the part that was there; it takes over the rest.
        """
        ...

    def all_blocks(self) -> list[int]:
        """Every block in the tree, in any order. O(blocks)."""
        ...

    def path_blocks(self, node: Any) -> list[int]:
        """The blocks from the root down to the end of `node`."""
        ...

    def lock(self, node: Any) -> None:
        """Protect the path from the root to `node` from eviction. Counts."""
        ...

    def unlock(self, node: Any) -> None:
        """Undo one `lock`."""
        ...

    def split(self, node: Any, num_blocks: int) -> Any:
        """Cut a node after `num_blocks` blocks; returns the new upper node.

        `node` keeps its identity and becomes the lower half, so locks on it stay right.
        """
        ...

    def evict(self, num_blocks: int) -> list[int]:
        """Remove up to `num_blocks` blocks, least recently used unlocked leaves first, from the ends
        of the leaves; returns them."""
        ...

    def check(self) -> None:
        """Verify every invariant; raises InvariantError naming the node and what is wrong."""
        ...


# ANCHOR_END: radix_tree


# ANCHOR: radix_attention
class RadixAttention(Protocol):
    """Lab 5. Attention of a flat varlen batch over paged keys and values, shared prefixes included.

    It is given a KVPool and TransformerOps.
    """

    def plan(self, batch: "AttentionBatch") -> Any:
        """Once a step: whatever the layers share (grouping, gather indices). Opaque to callers."""
        ...

    def run(
        self, layer: int, q: "Tensor", k: "Tensor", v: "Tensor", spec: "AttentionSpec", plan: Any
    ) -> "Tensor":
        """Write k, v [T, kv_heads, d] to the batch's slots, then attend with q [T, heads, d].

        Returns [T, heads, d].
        """
        ...


# ANCHOR_END: radix_attention


# ANCHOR: scheduling_policy
class SchedulingPolicy(Protocol):
    """Lab 6. Who matters more: the order of admission, and who keeps its blocks when they run out.

    No call costs more than O(log n) in the number of waiting requests, or a window of fixed size.
    """

    def rank(self, request: "Request") -> tuple[int, ...]:
        """Running requests are served in ascending rank; the last one is preempted first."""
        ...

    def push(self, request: "Request") -> None:
        """A new request joins the queue."""
        ...

    def push_front(self, request: "Request") -> None:
        """A preempted request comes back, ahead of its equals that have not run yet."""
        ...

    def peek(self) -> "Request | None":
        """Who is next; None if nobody waits."""
        ...

    def remove(self, request: "Request") -> None:
        """Take one request out of the queue, wherever it stands."""
        ...

    def __len__(self) -> int: ...


# ANCHOR_END: scheduling_policy


# ANCHOR: scheduler
class Scheduler(Protocol):
    """Lab 6. Decides what each step computes. It is given a KVCacheManager and a SchedulingPolicy."""

    def add(self, request: "Request") -> None:
        """Queue a request."""
        ...

    def schedule(self) -> "StepPlan":
        """Plan one step: who runs, how many tokens each, what is swapped or copied before.

        While work exists the plan schedules at least one token or reports a failed request.
        """
        ...

    def update(self, plan: "StepPlan", token_ids: Sequence[int]) -> "list[Request]":
        """Take over the step's result: `token_ids` has one token for each scheduled request that
        `samples`, in order. Returns those requests that are still alive, in the same order; one that
        was finished since the plan was made is left as it is.
        """
        ...

    def finish(self, request: "Request", reason: "FinishReason") -> None:
        """End a request, wherever it stands, and give back what it holds. Twice is harmless."""
        ...

    @property
    def num_running(self) -> int: ...

    @property
    def num_waiting(self) -> int: ...

    def check(self) -> None:
        """Verify that queues, statuses and block tables agree; raises InvariantError."""
        ...


# ANCHOR_END: scheduler


# ANCHOR: detokenizer
class Detokenizer(Protocol):
    """Lab 7. Turns one request's tokens into text as they come."""

    def push(self, token_id: int) -> str:
        """The text that this token makes final; "" while a character is incomplete."""
        ...

    def flush(self) -> str:
        """The end of the text, when no more tokens come."""
        ...


# ANCHOR_END: detokenizer


# ANCHOR: stop_checker
class StopChecker(Protocol):
    """Lab 7. Finds stop strings in one request's text, across token boundaries."""

    def push(self, text: str) -> tuple[str, str | None]:
        """(text that is safe to show, the stop string that was found or None).

        Text that may be the start of a stop string is held back until it is decided. Of several stop
        strings the one that is complete first ends the text, so that the result does not depend on how
        the text was cut into pieces; of those that end together, the longest.
        """
        ...

    def flush(self) -> str:
        """What was held back, when no more text comes."""
        ...


# ANCHOR_END: stop_checker


# ANCHOR: engine_core
class EngineCore(Protocol):
    """Lab 7. The step loop. It is given a scheduler, a runner and a sampler, and makes one
    detokenizer and one stop checker for each request."""

    def add_request(self, request: "Request") -> None:
        """Queue a request. Raises InvalidRequestError if one with its id is alive."""
        ...

    def abort(self, request_id: str) -> bool:
        """End a request now; False if it is unknown or over. It yields no further output."""
        ...

    def step(self) -> "list[RequestOutput]":
        """Schedule, run, sample, update; returns what each touched request gained.

        A request whose logits are not finite ends with FinishReason.ERROR; the others go on.
        """
        ...

    @property
    def has_work(self) -> bool: ...


# ANCHOR_END: engine_core


# ANCHOR: api_server
class OutputStream(Protocol):
    """Given to lab 8. The outputs of all requests of one call, as they come: `async for` it.

    requests: in the order of their choices, by prompt, then by `n`. An output may arrive for any of
    them; the stream ends after each has had its last one. Iterating raises EngineDeadError or
    EngineUnavailableError if the engine ends before that.
    submitted_at, first_output_at: when, on the clock of `time.perf_counter`.
    """

    requests: "list[Request]"
    submitted_at: float
    first_output_at: float | None

    def __aiter__(self) -> "AsyncIterator[RequestOutput]": ...

    async def __anext__(self) -> "RequestOutput": ...

    async def aclose(self) -> None:
        """Want no more: requests that still run are aborted. Twice, or after the end, is harmless."""
        ...


class ServingBackend(Protocol):
    """Given to lab 8. One model behind one name; lives on the event loop that serves HTTP.

    Every member raises EngineUnavailableError while the model loads, unless it is known by then.
    """

    @property
    def model_name(self) -> str:
        """What clients call the model."""
        ...

    @property
    def max_model_len(self) -> int:
        """The longest sequence in tokens, prompt and output together."""
        ...

    @property
    def sampling_defaults(self) -> dict[str, Any]:
        """Fields of SamplingParams that hold for a request which does not give them."""
        ...

    async def encode_chat(
        self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None
    ) -> list[int]:
        """The prompt of a conversation, with the functions that the model may call.

        Raises InvalidRequestError that names the bad message, or tools that the model cannot call.
        """
        ...

    async def submit_all(
        self, prompts: Sequence[str | list[int]], params: "SamplingParams", *, priority: int = 0
    ) -> OutputStream:
        """Queue several prompts as one stream: all are admitted, or none.

        Raises InvalidRequestError, EngineOverloadedError, EngineUnavailableError or EngineDeadError.
        """
        ...

    def extend(self, reply: "Reply", body: Any) -> "Reply":
        """The reply to a request, with what its body asks for beyond text: log-probabilities, the
        prompt's echo, tool calls. It is used in the place of `reply`, which it may be itself."""
        ...


class Reply(Protocol):
    """Lab 8. One answer to one call, in OpenAI's shape, as plain dicts.

    It is made of a model's name and the call's requests. `add` and `result` make a whole answer,
    `chunks` and `usage_chunk` a streamed one.
    """

    id: str
    requests: "Sequence[Request]"
    include_usage: bool

    def add(self, output: "RequestOutput") -> None:
        """Take over an output. Raises YaieError if its request failed."""
        ...

    def result(self) -> dict[str, Any]:
        """The whole answer, once every request has finished."""
        ...

    def chunks(self, output: "RequestOutput") -> "Iterator[dict[str, Any]]":
        """The chunks that an output makes. Raises YaieError if its request failed."""
        ...

    def usage_chunk(self) -> dict[str, Any]:
        """The last chunk of a stream that was asked for its usage."""
        ...


class ApiServer(Protocol):
    """Lab 8. The package itself: what the server and `LLMEngine.chat_completion` call on it."""

    @property
    def ChatReply(self) -> "Callable[[str, Sequence[Request]], Reply]":
        """Makes the Reply of a conversation."""
        ...

    @property
    def TextReply(self) -> "Callable[[str, Sequence[Request]], Reply]":
        """Makes the Reply of prompts to continue."""
        ...

    @property
    def ChatRequest(self) -> Any:
        """The body of `/v1/chat/completions`, a model of pydantic."""
        ...

    @property
    def CompletionRequest(self) -> Any:
        """The body of `/v1/completions`, a model of pydantic."""
        ...

    def usage(self, requests: "Sequence[Request]") -> dict[str, Any]:
        """OpenAI's token counts of the requests of one call."""
        ...

    def make_router(self, backend: ServingBackend) -> Any:
        """A FastAPI router with the endpoints below `/v1`, answered by `backend`."""
        ...

    def install_error_handlers(self, app: Any) -> None:
        """Make a FastAPI app answer every failure as OpenAI's error object."""
        ...

    def http_error(self, status: int, message: str, headers: dict[str, str] | None = None) -> Any:
        """The Starlette response to a failure that has no exception of ours."""
        ...

    def error_body(self, error: Exception) -> dict[str, Any]:
        """The error object of an exception."""
        ...

    def validation_error(self, errors: "Sequence[Any]") -> "InvalidRequestError":
        """The first of pydantic's complaints about a body as one of our errors."""
        ...

    def check_model(self, backend: ServingBackend, name: str | None) -> None:
        """Raises ModelNotFoundError unless `name` is the served model, or None."""
        ...

    async def whole_answer(self, stream: OutputStream, reply: Reply) -> Any:
        """The Starlette response with the answer in one piece."""
        ...

    async def until_disconnect(self, receive: Any, work: Any) -> Any:
        """What `work` returns. Raises ClientDisconnect, and cancels it, if the client leaves first."""
        ...

    def Answering(self, stream: OutputStream, reply: Reply) -> Any:
        """Stands around all that takes outputs from a stream, and closes it."""
        ...


# ANCHOR_END: api_server


# ANCHOR: model_runner
class ModelRunner(Protocol):
    """Given, not a lab. Carries out a plan on the device."""

    def run(self, plan: "StepPlan") -> "Tensor":
        """Move blocks, run the model; returns logits [num_sampling, vocab] float32."""
        ...

    def sampling_batch(self, requests: "Sequence[Request]") -> "SamplingBatch":
        """The sampling parameters of these requests as tensors on the device."""
        ...


# ANCHOR_END: model_runner


# ANCHOR: attend
class Attend(Protocol):
    """What a model adapter calls in each layer: it writes K and V to the pool and attends."""

    def __call__(
        self,
        layer: int,
        q: "Tensor",
        k: "Tensor",
        v: "Tensor",
        spec: "AttentionSpec",
        rotation: "Rotation | None" = None,
    ) -> "Tensor":
        """q [T, heads, d]; k, v [T, kv_heads, d]. Returns [T, heads, d].

        rotation: what q and k still lack; with it they may be overwritten.
        """
        ...


# ANCHOR_END: attend
