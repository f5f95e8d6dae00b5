"""The rules of queue and capture, in the words in which a report tells them."""

SYNC = (
    "A capture only notes kernels, none has run: there is no value to read, and CUDA refuses to wait. "
    "What a replayed step does may depend on shapes alone."
)
SIZES = (
    "A capture only notes kernels, none has run: how large the result becomes is unknown. Compute with "
    "all rows, padding too: shapes are fixed."
)
PAGEABLE = (
    "A graph holds addresses. Pageable memory of the host has none that the device can read, so CUDA "
    "refuses the copy. Upload before the replay, into a buffer of the device that stays."
)
PINNED = (
    "Pinning memory waits for the device. Do it before the capture, or for each upload outside."
)
EVENT = "What is waited for between replays is recorded between them, not in a capture."
ALL_ROWS = "`draw` takes the logits of all rows, padding too; cut after it."
NESTED = "A capture holds kernels alone, no other capture and no replay."
GRAPH_ONCE = "Each graph is recorded once; another recording needs another graph."
EMPTY = "Record first: `with device.capture(graph, pool)` around what the step launches."
MIXED = "An operation's tensors lie on one device. Upload what comes from the host first."
ADDRESSES = (
    "A graph reads the addresses that it was recorded with. What was uploaded for this step does not "
    "lie there: copy into `inputs` in place, before the replay."
)
FIXED = (
    "A graph reads the addresses that it was recorded with. Copy into `inputs` in place; a tensor that "
    "takes its name is another one, which the graph has never heard of."
)
NUMPY = "NumPy reads memory of the host. A tensor of the device is copied to pinned memory first."
WARM_UP = (
    "What runs for the first time is compiled, or makes its workspace: that waits for the device and "
    "takes memory that a capture may not take. Run the step once, on padding, before it is recorded."
)

READS = {
    "_local_scalar_dense": "the host reads a value",
    "nonzero": "the size of a result depends on values (nonzero)",
    "masked_select": "the size of a result depends on values (masked_select)",
    "equal": "the host reads a value (equal)",
    "is_nonzero": "the host reads a value",
    "_unique2": "the size of a result depends on values (unique)",
}
"""Operations that the host has to wait for."""

HOST_READS = frozenset(
    "item tolist cpu numpy __bool__ __int__ __float__ __index__ __repr__ __format__ __array__".split()
)
"""Methods of a tensor that read it on the host."""
