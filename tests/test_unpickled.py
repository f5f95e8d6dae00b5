"""What comes from a network or from a file of someone else is never unpickled, which would run its code.

What goes to another host is written and read by `yaie.system.codec`.
"""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.test_house import ROOT, sources

MODULES = {
    "pickle", "_pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "ray",
    "multiprocessing", "concurrent.futures.ProcessPoolExecutor",
    "torch.distributed.rpc", "torch.multiprocessing",
}  # fmt: skip
"""Which unpickle, or have connections that do."""
OWN_CHILD = "a pipe to a child of this process, which nobody else has"
ARGUED = {
    "yaie/system/child.py": "asks for the parent process, and sends nothing",
    "yaie/engine/background/engine_process.py": OWN_CHILD,
    "yaie/engine/background/engine_child.py": "the other end of that pipe",
    "yaie/server/body_reader.py": OWN_CHILD,
    "yaie/server/body_process.py": "the other end of that pipe",
    "yaie/worker/parallel/processes.py": "starts children; what they say is read by the codec",
    "yaie/worker/parallel/rank_process.py": "names the type of the other end; read by the codec",
    "yaie/worker/replay.py": "recordings of steps: replay only your own, as its docstring says",
    "yaie/bench/evidence/gpu_ranks.py": "starts children, which read nothing of it",
    "yaie/bench/evidence/stream_cost.py": OWN_CHILD,
    "yaie/bench/evidence/stream_client.py": "the other end of that pipe",
    "yaie/bench/throughput/serve.py": OWN_CHILD,
    "yaie/bench/scale/crew.py": OWN_CHILD,
    "yaie/bench/scale/rank.py": "the other end of that pipe",
    "yaie/cluster/application.py": "Ray's own connections, of which scaling.md says what they trust",
    "yaie/cluster/ingress.py": "the same",
    "yaie/cluster/ray_start.py": "the same",
    "yaie/cluster/replica.py": "the same",
    "yaie/cluster/router.py": "the same",
    "yaie/cluster/run.py": "the same",
}  # fmt: skip
"""Files that may import one of them, and why."""
NEVER = {
    "recv_pyobj", "send_pyobj", "broadcast_object_list", "all_gather_object", "gather_object",
    "scatter_object_list", "send_object_list", "recv_object_list", "Listener", "BaseManager",
    "SyncManager", "rpc_sync", "rpc_async", "Unpickler", "read_pickle",
}  # fmt: skip
"""Functions and classes that unpickle what comes by a connection of TCP, or from a file."""


WORDS = re.compile(
    r"\b(?:{})\b".format("|".join({*NEVER, *(name.rpartition(".")[2] for name in MODULES)}))
    + r"|torch\.load|allow_pickle"
)
"""Without one of these a source need not be parsed."""


def found(text: str) -> Iterator[str]:
    """What a source has of `MODULES`, of `NEVER`, and of loads that may be of pickles."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from _modules(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [alias.name for alias in node.names]
            yield from _modules(f"{node.module}.{name}" for name in names)
            yield from (name for name in names if name in NEVER)
        elif isinstance(node, ast.Attribute) and node.attr in NEVER:
            yield node.attr
        elif isinstance(node, ast.Call):
            given = {one.arg: getattr(one.value, "value", None) for one in node.keywords}
            if _is_torch_load(node.func) and given.get("weights_only") is not True:
                yield "torch.load without weights_only"
            if given.get("allow_pickle", False) is not False:
                yield "allow_pickle"


def _is_torch_load(node: ast.expr) -> bool:
    match node:
        case ast.Attribute(ast.Name("torch"), "load"):
            return True
    return False


def _modules(names: Iterator[str]) -> Iterator[str]:
    for name in names:
        yield from (one for one in MODULES if name == one or name.startswith(one + "."))


def test_nothing_is_unpickled_but_what_this_process_or_its_user_has_written() -> None:
    for path in sources("yaie", "solutions"):
        name = path.relative_to(ROOT).as_posix()
        text = path.read_text("utf-8")
        has = set(found(text)) if WORDS.search(text) else set()
        if name in ARGUED:
            assert has, f"{name} is argued for and need not be: take it off the list"
            has -= MODULES
        assert not has, (
            f"{name} has {has}: use yaie.system.codec, or say in {__name__} why it is safe"
        )
    for name in ARGUED:
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import pickle", "pickle"),
        ("def f():\n    from multiprocessing.connection import Client", "multiprocessing"),
        ("from multiprocessing.managers import BaseManager", "BaseManager"),
        ("from concurrent.futures import ProcessPoolExecutor", "concurrent.futures.ProcessPoolExecutor"),
        ("dist.broadcast_object_list(x)", "broadcast_object_list"),
        ("from torch.distributed import gather_object", "gather_object"),
        ("socket.recv_pyobj()", "recv_pyobj"),
        ("torch.load(path)", "torch.load without weights_only"),
        ("torch.load(path, weights_only=False)", "torch.load without weights_only"),
        ("numpy.load(path, allow_pickle=True)", "allow_pickle"),
    ],
)  # fmt: skip
def test_each_way_to_unpickle_is_seen(source: str, what: str) -> None:
    assert WORDS.search(source)
    assert what in set(found(source))


@pytest.mark.parametrize(
    "source",
    ["torch.load(path, weights_only=True)", "numpy.load(path)", "json.load(file)", "import pickletools",
     "from concurrent.futures import ThreadPoolExecutor", "from yaie.system import codec"],
)  # fmt: skip
def test_what_reads_no_pickle_is_left_alone(source: str) -> None:
    assert not set(found(source))
