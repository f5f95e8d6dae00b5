"""What `yaie.bench.evidence.gpu_fusions` leaves out is out; its figures come from a GPU."""

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from solutions.paged_cache import KVPool
from yaie.backends import choose_backend, fused
from yaie.bench.evidence.gpu_fusions import LEFT_OUT
from yaie.core.batch import KVLayerSpec
from yaie.core.config import EngineConfig

ALL = {"products", "norms", "rotation", "early"}
LEAST: dict[str, set[str]] = {
    "without norm, gate and addition in the products": ALL - {"products"},
    "without norms in the launch that rotates and stores": ALL - {"norms"},
    "without norms and rotation in the launch that stores": ALL - {"norms", "rotation"},
    "without early launch": ALL - {"early"},
    "without all of them but early launch": {"early"},
}


def there() -> set[str]:
    """Which fusions an engine that is made now has."""
    backend: Any = choose_backend(EngineConfig(backend="triton", mine="none"), torch.device("cpu"))
    pool = KVPool([KVLayerSpec(2, 32)], 4, 16, torch.float16, torch.device("cpu"))
    store = backend.make_attention(pool)._store
    has = {
        "products": backend._fused_gemm() is not None,
        "norms": store._norm_rope_store is not None,
        "rotation": store._rope_and_store is not None,
        "early": fused.starts_early(torch.device("cuda")),
    }
    return {name for name, is_there in has.items() if is_there}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_an_engine_is_without_what_is_left_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(fused, "starts_early", lambda device: True)
    make: partial[AbstractContextManager[None]] = LEFT_OUT[name]
    assert there() == ALL
    with make():
        assert there() == LEAST[name]
    assert there() == ALL
