"""A device that is none: a queue whose work is done late, and graphs that hold to the rules of capture.

Everything lies in the CPU's memory. While `running`, each operation of PyTorch on tensors comes by here:

    outside a capture   copies between pinned memory and the device, and replays, are queued; they are done
                        when an event is waited for, or when anything else wants to see the device
    within one          an operation is noted with the addresses of its tensors. A replay carries it out
                        again on the same addresses, with what lies there then

Tensors that PyTorch makes are the device's; those over NumPy's memory are the host's, and pageable.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

from grader.kit.expect import Fault
from grader.suites.cuda_graphs import rules
from grader.suites.cuda_graphs.pool import Pool

UNREAD = -77
"""What stands in host memory until a copy has arrived."""


class StandInGraph:
    """See `yaie.core.contracts.graphs.Graph`. pool: that it was recorded from."""

    def __init__(self, device: "StandIn") -> None:
        self._device = device
        self.operations: list[Callable[[], Any]] = []
        self.pool: Pool | None = None

    def replay(self) -> None:
        self._device.replay(self)


class StandInEvent:
    """See `yaie.core.contracts.graphs.Event`."""

    def __init__(self, device: "StandIn") -> None:
        self._device = device
        self._place: int | None = None

    def record(self) -> None:
        self._device.refuse_in_capture("an event is recorded", rules.EVENT)
        self._place = self._device.num_queued

    def synchronize(self) -> None:
        self._device.refuse_in_capture("an event is waited for", rules.SYNC)
        if self._place is not None:
            self._device.work_until(self._place)


class StandIn:
    """See `yaie.core.contracts.graphs.Device`.

    waits: how often the host had to wait for all that was queued. num_queued: so far. replays: of graphs.
    launches: of kernels by themselves. captured: the graphs that hold something, in order.
    """

    def __init__(self) -> None:
        self.where = torch.device("cpu")
        self.waits = self.num_queued = self.replays = self.launches = 0
        self.captured: list[StandInGraph] = []
        self._num_done = 0
        self._queue: deque[Callable[[], None]] = deque()
        self._kept: dict[int, tuple[str, Tensor]] = {}  # by storage; kept, so that no other takes its place
        self._graph: StandInGraph | None = None
        self._before: dict[int, tuple[Tensor, Tensor]] = {}
        self._made: list[Tensor] = []
        self._busy = False
        self._last_pinned: dict[tuple[int, ...], Tensor] = {}

    @contextmanager
    def running(self) -> Iterator["StandIn"]:
        """All that PyTorch does in the body comes by here."""
        with _Calls(self), _Operations(self):
            yield self

    @property
    def num_done(self) -> int:
        """How much of what was queued is done."""
        return self._num_done

    @property
    def is_capturing(self) -> bool:
        return self._graph is not None

    # --- the contract ---

    def pinned(self, *shape: int, dtype: torch.dtype) -> Tensor:
        self.refuse_in_capture("memory of the host is pinned", rules.PINNED)
        with self._quiet():
            tensor = torch.ones(shape, dtype=dtype)
            last = self._last_pinned.get(tuple(shape))
            if last is not None and last.dtype == dtype:
                tensor.copy_(last)  # memory that is given out again holds what it held
            self._last_pinned[tuple(shape)] = tensor
            self._keep("pinned", tensor)
            return tensor

    def event(self) -> StandInEvent:
        return StandInEvent(self)

    def graph(self) -> StandInGraph:
        return StandInGraph(self)

    def pool(self) -> Pool:
        return Pool()

    @contextmanager
    def capture(self, graph: StandInGraph, pool: Any) -> Iterator[None]:
        if self._graph is not None:
            raise Fault("a capture begins within another one", why=rules.NESTED)
        if graph.pool is not None:
            raise Fault("a graph is recorded that holds something already", why=rules.GRAPH_ONCE)
        self._work()
        self._graph, self._before, self._made = graph, {}, []
        graph.pool = Pool() if pool is None else pool
        try:
            yield
            self.captured.append(graph)
        finally:
            self._graph = None
            with self._quiet():
                for now, before in self._before.values():
                    now.copy_(before)  # nothing of a capture runs
                for tensor in self._made:
                    tensor.zero_()
            self._made = []

    def alias(self, tensor: Tensor) -> Tensor:
        graph = self.captured[-1] if self.captured else None
        for one in [graph, *self.captured]:
            if one is not None and one.pool is not None and (held := one.pool.held(tensor)):
                with self._quiet():
                    bare = one.pool.bare(tensor, held)
                    self._keep("device", bare)
                    return bare
        return tensor

    # --- the queue ---

    def replay(self, graph: StandInGraph) -> None:
        self.refuse_in_capture("a graph is replayed", rules.NESTED)
        if graph.pool is None:
            raise Fault("a graph is replayed before anything was recorded into it", why=rules.EMPTY)
        self.replays += 1
        self._put(lambda: [work() for work in graph.operations])

    def _put(self, work: Callable[[], Any]) -> None:
        self._queue.append(work)
        self.num_queued += 1

    def work_until(self, place: int) -> None:
        """Do what was queued as one of the first `place`."""
        with self._quiet():
            while self._num_done < place:
                self._num_done += 1
                self._queue.popleft()()

    def _work(self) -> None:
        self.work_until(self.num_queued)

    def wait(self) -> None:
        """The host waits until the device has nothing left to do."""
        self.waits += 1
        self._work()

    def idle_queue(self) -> None:
        """Let the device do what is queued, for a look that is not the part's."""
        self._work()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What the grader does in the body is no part of the program."""
        with self._quiet():
            yield

    def memory(self, tensor: Tensor) -> Any:
        """A tensor of the device as an array, for what is given."""
        with self._quiet():
            return tensor.numpy()

    @contextmanager
    def _quiet(self) -> Iterator[None]:
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

    def kind(self, tensor: Tensor) -> str:
        """"device", "pinned", or "pageable"."""
        if self._graph is not None and self._graph.pool is not None:
            if self._graph.pool.held(tensor):
                return "device"
        found = self._kept.get(tensor.untyped_storage().data_ptr())
        if found is None and any(g.pool is not None and g.pool.held(tensor) for g in self.captured):
            return "device"
        return "pageable" if found is None else found[0]

    def refuse_in_capture(self, what: str, rule: str) -> None:
        if self._graph is not None:
            raise Fault(f"in a capture {what}", why=rule)

    # --- operations ---

    def operate(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operation of PyTorch."""
        if self._busy:
            return func(*args, **kwargs)
        tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        kinds = [self.kind(tensor) for tensor in tensors]
        if tensors and "device" not in kinds:
            if self._graph is not None and "pinned" in kinds:
                raise Fault("in a capture the host's memory is computed with", why=rules.PAGEABLE)
            return func(*args, **kwargs)
        if func.is_view:
            return func(*args, **kwargs)
        name = func.overloadpacket.__name__
        if name == "copy_" and kinds[:2] != ["device", "device"]:
            return self._copy(func, args, kinds)
        if any(kind != "device" and tensor.ndim for kind, tensor in zip(kinds, tensors, strict=True)):
            self._mixed(name)
        if name in rules.READS:
            self.refuse_in_capture(rules.READS[name], rules.SYNC)
            self.wait()
        if self._graph is not None:
            return self._note(func, args, kwargs, tensors)
        self._work()
        self.launches += not name.startswith(("empty", "zeros", "arange"))
        return self._kept_result(func(*args, **kwargs))

    def _mixed(self, name: str) -> None:
        if name.startswith("index"):  # indices may come from the host, which copies them first
            self.refuse_in_capture("indices come from memory that is not pinned", rules.PAGEABLE)
            self.wait()
            return
        raise Fault(f"{name} takes a tensor of the device and one of the host", why=rules.MIXED)

    def _kept_result(self, result: Any) -> Any:
        for tensor in tree_flatten(result)[0]:
            if isinstance(tensor, Tensor):
                self._keep("device", tensor)
        return result

    def _copy(self, func: Any, args: Any, kinds: list[str]) -> Any:
        target, source, *rest = args
        is_async = bool(rest and rest[0]) and "pageable" not in kinds
        if self._graph is not None:
            if "pageable" in kinds:
                raise Fault("in a capture memory is copied that is not pinned", why=rules.PAGEABLE)
            if not is_async:
                raise Fault("in a capture a copy waits for the device", why=rules.SYNC)
            work = self._bound(func, args, {})
            self._graph.operations.append(work)
            return target
        if is_async:
            if kinds[0] == "pinned":
                with self._quiet():
                    target.fill_(UNREAD if target.dtype != torch.bool else 0)
            self._put(lambda: target.copy_(source))
            return target
        self.wait()
        return func(*args)

    # --- a capture ---

    def _note(self, func: Any, args: Any, kwargs: Any, tensors: list[Tensor]) -> Any:
        graph = self._graph
        assert graph is not None
        assert graph.pool is not None
        writes = [
            tensors[0] if not isinstance(value := _given(arg, at, args, kwargs), Tensor) else value
            for at, arg in enumerate(func._schema.arguments)
            if arg.alias_info is not None and arg.alias_info.is_write
        ]
        for tensor in writes:
            self._save(tensor)
        known = {tensor.untyped_storage().data_ptr() for tensor in tensors}
        work = self._bound(func, args, kwargs)
        with self._quiet():
            result = func(*args, **kwargs)
        fresh: list[Tensor] = []

        def placed(tensor: Tensor) -> Tensor:
            if tensor.untyped_storage().data_ptr() in known:
                return tensor  # a view, or what was written to
            with self._quiet():
                there = graph.pool.like(tensor)
                there.copy_(tensor)
            self._made.append(self._address(there))
            fresh.append(self._address(there))
            return there

        result = tree_map_only(Tensor, placed, result)
        if fresh and not func.overloadpacket.__name__.startswith(("empty", "new_empty")):
            graph.operations.append(lambda: _write(work(), fresh))
        elif writes:
            graph.operations.append(work)
        return result

    def _save(self, tensor: Tensor) -> None:
        key = tensor.untyped_storage().data_ptr()
        if self._graph is None or self._graph.pool is None or self._graph.pool.held(tensor):
            return
        with self._quiet():
            whole = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
            self._before.setdefault(key, (whole, whole.clone()))

    def _address(self, tensor: Tensor) -> Tensor:
        """What a graph knows of a tensor: where it lies."""
        for graph in [self._graph, *self.captured]:
            if graph is not None and graph.pool is not None and (held := graph.pool.held(tensor)):
                with self._quiet():
                    return graph.pool.bare(tensor, held)
        return tensor

    def _bound(self, func: Any, args: Any, kwargs: Any) -> Callable[[], Any]:
        there, named = tree_map_only(Tensor, self._address, (args, kwargs))
        return lambda: func(*there, **named)

    # --- calls of the host ---

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        """A function of PyTorch, before it is taken apart into operations."""
        if self._busy:
            return func(*args, **kwargs)
        name, first = getattr(func, "__name__", ""), args[0] if args else None
        if name in rules.HOST_READS and isinstance(first, Tensor) and self.kind(first) == "device":
            if name == "numpy":
                raise Fault("numpy() is asked of a tensor of the device", why=rules.NUMPY)
            self.refuse_in_capture(f"the host reads a value ({name})", rules.SYNC)
            self.wait()
            with self._quiet():
                return first.clone() if name == "cpu" else func(*args, **kwargs)
        if name in ("tensor", "as_tensor"):
            self.refuse_in_capture("the host's numbers become a tensor", rules.PAGEABLE)
        result = func(*args, **kwargs)
        if _asks_for_device(name, args, kwargs) and self.kind(result) != "device":
            self.refuse_in_capture("memory is copied that is not pinned", rules.PAGEABLE)
            self.wait()
            with self._quiet():
                result = result.clone()
            self._keep("device", result)
        return result


def _asks_for_device(name: str, args: Any, kwargs: Any) -> bool:
    if name == "to":
        return any(isinstance(x, torch.device) for x in [*args, *kwargs.values()])
    return name in ("tensor", "as_tensor") and kwargs.get("device") is not None


def _given(arg: Any, at: int, args: Any, kwargs: Any) -> Any:
    return args[at] if at < len(args) else kwargs.get(arg.name)


def _write(results: Any, targets: list[Tensor]) -> None:
    made = [x for x in tree_flatten(results)[0] if isinstance(x, Tensor)]
    for target, result in zip(targets, made, strict=True):
        target.copy_(result)


class _Operations(TorchDispatchMode):
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
