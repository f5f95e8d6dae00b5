"""A device that is none: a queue whose work is done late, and graphs that hold to the rules of capture.

Everything lies in the CPU's memory. While `running`, each operation of PyTorch comes by here:

    outside a capture   copies between pinned memory and the device, and replays, are queued. They are
                        done when an event is waited for, or when something else looks at the device
    within one          an operation is noted with the addresses of its tensors. A replay carries it
                        out again on the same addresses, with what lies there then

Tensors that PyTorch makes are the device's; those over NumPy's memory are the host's, and pageable.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten

from grader.kit.dispatch import Watching
from grader.kit.expect import Fault
from grader.suites.cuda_graphs import rules
from grader.suites.cuda_graphs.capture import Capture, StandInGraph
from grader.suites.cuda_graphs.pool import Pool
from grader.suites.cuda_graphs.waited import NOT_PINNED, NOT_QUEUED, Wait, wait_for

UNREAD = -77
"""What stands in host memory until a copy has arrived."""


class StandInEvent:
    """See `yaie.core.contracts.graphs.Event`."""

    def __init__(self, device: "StandIn") -> None:
        self._device = device
        self._place: int | None = None

    def record(self) -> None:
        self._device.refuse_in_capture("an event is recorded", rules.EVENT)
        self._place = self._device.num_queued
        self._device.num_recorded += 1

    def synchronize(self) -> None:
        self._device.refuse_in_capture("an event is waited for", rules.SYNC)
        if self._place is not None:
            self._device.work_until(self._place)


class StandIn:
    """See `yaie.core.contracts.graphs.Device`.

    waited: why the host had to wait for all that was queued, each time. num_queued, num_done: of copies
    and replays. num_recorded: of events. replayed: graphs by number, in the order in which they were
    recorded. launched: names of kernels by themselves. captured: graphs that hold something, in order.
    """

    def __init__(self) -> None:
        self.where = torch.device("cpu")
        self.launched: list[str] = []
        self.waited: list[Wait] = []
        self.replayed: list[int] = []
        self.num_queued = self.num_done = self.num_recorded = 0
        self.captured: list[StandInGraph] = []
        self._queue: deque[Callable[[], Any]] = deque()
        # By address of the storage. Kept, so that no other tensor takes its place.
        self._kept: dict[int, tuple[str, Tensor]] = {}
        self._last_pinned: dict[tuple[Any, ...], Tensor] = {}
        self._capture: Capture | None = None
        self._busy = False

    @contextmanager
    def running(self) -> Iterator["StandIn"]:
        """All that PyTorch does in the body comes by here."""
        with _Calls(self), _Operations(self):
            yield self

    @property
    def is_capturing(self) -> bool:
        return self._capture is not None

    # --- the contract ---

    def pinned(self, *shape: int, dtype: torch.dtype) -> Tensor:
        self.refuse_in_capture("memory of the host is pinned", rules.PINNED)
        with self.aside():
            tensor = torch.ones(shape, dtype=dtype)
            last = self._last_pinned.setdefault((shape, dtype), tensor)
            tensor.copy_(last)  # memory that is given out again holds what it held
            self._last_pinned[shape, dtype] = tensor
            self._keep("pinned", tensor)
            return tensor

    def event(self) -> StandInEvent:
        return StandInEvent(self)

    def graph(self) -> StandInGraph:
        return StandInGraph(self._replay)

    def pool(self) -> Pool:
        return Pool()

    @contextmanager
    def capture(self, graph: Any, pool: Any) -> Iterator[None]:
        self.refuse_in_capture("another capture begins", rules.NESTED)
        if graph.pool is not None:
            raise Fault("a graph is recorded that holds something already", why=rules.GRAPH_ONCE)
        self.idle_queue()
        graph.pool = Pool() if pool is None else pool
        self._capture = Capture(graph, graph.pool)
        self.captured.append(graph)
        try:
            yield
        finally:
            with self.aside():
                self._capture.end()
            self._capture = None

    def alias(self, tensor: Tensor) -> Tensor:
        pool = self._pool_of(tensor)
        if pool is None:
            return tensor
        with self.aside():
            segment = pool.held(tensor)
            assert segment is not None
            return pool.bare(tensor, segment)

    # --- the queue ---

    def _replay(self, graph: StandInGraph) -> None:
        self.refuse_in_capture("a graph is replayed", rules.NESTED)
        if graph.pool is None:
            raise Fault("a graph is replayed before anything was recorded into it", why=rules.EMPTY)
        at = (number for number, one in enumerate(self.captured, 1) if one is graph)
        self.replayed.append(next(at, 0))
        self._put(graph.run)

    def _put(self, work: Callable[[], Any]) -> None:
        self._queue.append(work)
        self.num_queued += 1

    def work_until(self, place: int) -> None:
        """Do what was queued as one of the first `place`."""
        with self.aside():
            while self.num_done < place:
                self.num_done += 1
                self._queue.popleft()()

    def idle_queue(self) -> None:
        """Do all that is queued. No wait of the part's."""
        self.work_until(self.num_queued)

    @property
    def waits(self) -> int:
        """How often the host had to wait."""
        return len(self.waited)

    @property
    def launches(self) -> int:
        """How many kernels were launched by themselves."""
        return len(self.launched)

    @property
    def replays(self) -> int:
        return len(self.replayed)

    def _wait(self, what: str) -> None:
        """The host waits until the device has nothing left to do. what: it does."""
        self.waited.append(wait_for(what))
        self.idle_queue()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What happens in the body is no part of the program."""
        before, self._busy = self._busy, True
        try:
            yield
        finally:
            self._busy = before

    # --- whose memory ---

    def hold(self, *tensors: Tensor) -> None:
        """These are tensors of the device."""
        for tensor in tensors:
            self._keep("device", tensor)

    def _keep(self, kind: str, tensor: Tensor) -> None:
        self._kept.setdefault(tensor.untyped_storage().data_ptr(), (kind, tensor))

    def _pool_of(self, tensor: Tensor) -> Pool | None:
        pools = {id(graph.pool): graph.pool for graph in self.captured}.values()
        return next((pool for pool in pools if pool is not None and pool.held(tensor)), None)

    def kind(self, tensor: Tensor) -> str:
        """ "device", "pinned", or "pageable"."""
        if self._pool_of(tensor) is not None:
            return "device"
        found = self._kept.get(tensor.untyped_storage().data_ptr())
        return "pageable" if found is None else found[0]

    def refuse_in_capture(self, what: str, rule: str) -> None:
        if self._capture is not None:
            raise Fault(f"in a capture {what}", why=rule)

    # --- operations ---

    def operate(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operation of PyTorch."""
        tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        if self._busy or func.is_view:
            return func(*args, **kwargs)
        kinds = [self.kind(tensor) for tensor in tensors]
        name = func.overloadpacket.__name__
        if tensors and "device" not in kinds:
            return func(*args, **kwargs)
        if name == "copy_" and kinds[:2] != ["device", "device"]:
            return self._copy(func, args, kinds)
        if any(kind != "device" and x.ndim for kind, x in zip(kinds, tensors, strict=True)):
            self._join(name)
        if name in rules.READS or (name == "index" and _has_mask(tensors)):
            what = rules.READS.get(name, "the size of a result depends on values (a mask)")
            self.refuse_in_capture(what, rules.SIZES if "size of" in what else rules.SYNC)
            self._wait(f"needs a value: {what}")
        with self.aside():
            if self._capture is not None:
                return self._capture.note(func, args, kwargs, tensors)
            self.idle_queue()
            if not name.startswith(("empty", "zeros", "arange")):
                self.launched.append(name)
            result = func(*args, **kwargs)
        self.hold(*(x for x in tree_flatten(result)[0] if isinstance(x, Tensor)))
        return result

    def _join(self, name: str) -> None:
        """Tensors of the device and of the host in one operation."""
        if not name.startswith("index"):  # indices may come from the host, which copies them first
            raise Fault(f"{name} takes a tensor of the device and one of the host", why=rules.MIXED)
        self.refuse_in_capture("indices come from memory that is not pinned", rules.PAGEABLE)
        self._wait("takes indices from memory that is not pinned")

    def _copy(self, func: Any, args: Any, kinds: list[str]) -> Any:
        """A copy between device and host."""
        target, source, *rest = args
        is_async = bool(rest and rest[0])
        if "pageable" in kinds:
            self.refuse_in_capture("memory is copied that is not pinned", rules.PAGEABLE)
        elif is_async:
            if self._capture is not None:
                return self._capture.copy(func, args)
            if kinds[0] == "pinned":
                with self.aside():
                    target.fill_(UNREAD)
            self._put(lambda: target.copy_(source))
            return target
        self.refuse_in_capture("a copy waits for the device", rules.SYNC)
        self._wait(NOT_PINNED if "pageable" in kinds else NOT_QUEUED)
        return func(*args)

    # --- calls of the host ---

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A function of PyTorch, before it is taken apart into operations."""
        name, first = getattr(func, "__name__", ""), args[0] if args else None
        if self._busy:
            return func(*args, **kwargs)
        if name in rules.HOST_READS and isinstance(first, Tensor) and self.kind(first) == "device":
            if name == "numpy":
                raise Fault("numpy() is asked of a tensor of the device", why=rules.NUMPY)
            self.refuse_in_capture(f"the host reads a value ({name})", rules.SYNC)
            self._wait(f"reads a value ({name})")
            with self.aside():
                return first.clone() if name == "cpu" else func(*args, **kwargs)
        if name in ("tensor", "as_tensor"):
            self.refuse_in_capture("the host's numbers become a tensor", rules.PAGEABLE)
        result = func(*args, **kwargs)
        if _asks_for_device(name, args, kwargs) and self.kind(result) != "device":
            self.refuse_in_capture("memory is copied that is not pinned", rules.PAGEABLE)
            self._wait(NOT_PINNED)
            with self.aside():
                result = result.clone()
            self.hold(result)
        return result


def _has_mask(tensors: list[Tensor]) -> bool:
    return any(tensor.dtype == torch.bool for tensor in tensors[1:])


def _asks_for_device(name: str, args: Any, kwargs: Any) -> bool:
    if name == "to":
        return any(isinstance(x, torch.device) for x in [*args, *kwargs.values()])
    return name in ("tensor", "as_tensor") and kwargs.get("device") is not None


class _Operations(Watching):
    def __init__(self, device: StandIn) -> None:
        super().__init__()
        self._device = device

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._device.operate(func, args, kwargs or {})


class _Calls(TorchFunctionMode):
    def __init__(self, device: StandIn) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self._device.call(func, args, kwargs or {})
