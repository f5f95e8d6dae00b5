"""Mutants of layout: which there are, and that they can be named from one run to the next."""

import pytest

from grader.selfcheck.cuda_layout import layout_mutants_of_cuda
from grader.selfcheck.layout_mutants import layout_mutants_of, layout_mutants_of_python
from grader.selfcheck.mutant import LAYOUT, Mutant
from grader.selfcheck.strides import others_for
from grader.selfcheck.variants import reference_folder
from yaie.curriculum.manifest import load_curriculum

KERNEL = """\
def kernel(q, k, q_stride, k_stride, q_strides, k_strides, D, BLOCK):
    row = tl.program_id(0).to(tl.int64)
    a = tl.load(q + row * q_stride + k_strides[0])
    acc = tl.zeros([BLOCK], tl.float32)
"""
WRAPPER = """\
def call(q: Tensor, k: Tensor):
    k = k.contiguous()
    kernel[(1,)](q, k, q.stride(0), k.stride(0), *q.stride()[:2], eps)
"""


def tasks(text: str) -> dict[int, str]:
    """All but the first line belong to one task."""
    return dict.fromkeys(range(1, len(text.splitlines())), "9.1")


def changes(text: str, of=layout_mutants_of_python) -> list[str]:
    found: list[Mutant] = list(of(text, "f", tasks(text)))
    assert len({mutant.key for mutant in found}) == len(found)
    assert all(mutant.is_layout for mutant in found)
    return sorted(mutant.change.removeprefix(LAYOUT) for mutant in found)


def test_a_kernels_strides_casts_and_accumulators_are_changed() -> None:
    assert changes(KERNEL) == [
        "drop .to(tl.int64)",
        "k_strides -> q_strides",
        "k_strides[0] -> [1]",
        "q_stride -> D",
        "q_stride -> k_stride",
        "tl.float32 -> tl.float16",
    ]


def test_casts_of_one_statement_are_dropped_together() -> None:
    """Of two factors, one in float32 makes the product float32: losing one cast alone does no harm."""
    text = "def kernel(x, w):\n    y = x.to(tl.float32) * w.to(tl.float32)\n    return y.float()\n"
    found = list(layout_mutants_of_python(text, "f", tasks(text)))
    assert [mutant.change for mutant in found] == [
        f"{LAYOUT}drop .to(tl.float32)", f"{LAYOUT}drop .float()"
    ]  # fmt: skip
    assert "y = x * w\n" in found[0].source
    assert "return y\n" in found[1].source


def test_a_launch_gets_other_strides_and_another_order() -> None:
    assert changes(WRAPPER) == [
        "drop .contiguous()",
        "k.stride(0) -> k.shape[-1]",
        "k.stride(0) -> q.stride(0)",
        "k.stride(0) -> stride(1)",
        "q.stride() -> as if contiguous",
        "q.stride() -> k.stride()",
        "q.stride(0) -> k.stride(0)",
        "q.stride(0) -> q.shape[-1]",
        "q.stride(0) -> stride(1)",
        "swap k.stride(0) and *q.stride()[:2]",
        "swap q and k",
        "swap q.stride(0) and k.stride(0)",
    ]


CUDA = """\
__global__ void store(const T* k, const T* v, int64_t k_stride, int64_t v_stride, int64_t d) {
    const int64_t token = int64_t(blockIdx.x) * blockDim.x;
    float total = 0.0f;
    out[token] = k[token * k_stride];  // k_stride
}
int call() {
    return launch(store<T>, dim3(1), 32, 0, stream, (const T*)k, (const T*)v, k_stride,
                  v_stride, tokens, d);
}
"""


def test_cuda_is_changed_in_the_same_ways() -> None:
    assert changes(CUDA, layout_mutants_of_cuda) == [
        "float -> half",
        "int64_t -> int",
        "int64_t -> int (2)",
        "k_stride -> d",
        "k_stride -> d",
        "k_stride -> v_stride",
        "k_stride -> v_stride",
        "swap (const T*)k and (const T*)v",
        "swap k_stride and v_stride",
        "swap tokens and d",
        "v_stride -> d",
        "v_stride -> k_stride",
    ]


def test_a_mutant_of_cuda_differs_in_one_place() -> None:
    swapped = [
        mutant.source
        for mutant in layout_mutants_of_cuda(CUDA, "f", tasks(CUDA))
        if mutant.change.endswith("swap k_stride and v_stride")
    ]
    assert swapped == [
        CUDA.replace(
            "k_stride,\n                  v_stride", "v_stride,\n                  k_stride"
        )
    ]


def test_strides_are_taken_for_their_nearest() -> None:
    names = ["k_head_stride", "k_slot_stride", "v_head_stride", "table_stride", "token", "D"]
    assert others_for("k_head_stride", names) == ["k_slot_stride", "v_head_stride"]
    assert others_for("table_stride", names[2:]) == ["v_head_stride"]


@pytest.mark.nightly
@pytest.mark.parametrize("key", ["sampler", "triton_ops", "cuda_memory_ops"])
def test_the_keys_of_a_lab_are_different_and_stay(key: str) -> None:
    lab = load_curriculum()[key]
    found = [mutant.key for mutant in layout_mutants_of(reference_folder(lab), lab)]
    assert len(set(found)) == len(found) > 0
    assert found == [mutant.key for mutant in layout_mutants_of(reference_folder(lab), lab)]
