"""What a Triton kernel does to memory: checked before it happens, and counted."""

import os

import pytest
import torch

triton = pytest.importorskip("triton")
if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("Triton's interpreter is off: there is a GPU", allow_module_level=True)

import triton.language as tl  # noqa: E402

from grader.kit import Fault  # noqa: E402
from grader.kit.layout import STRIDE_WHY, padded, padded_apart  # noqa: E402
from grader.kit.triton_faults import EITHER_WHY, OUTSIDE_WHY  # noqa: E402
from grader.kit.triton_watch import watching  # noqa: E402
from grader.recorder import _stub_in, explain  # noqa: E402
from grader.submission import Submission, locate  # noqa: E402
from yaie.curriculum.manifest import ROOT, load_curriculum  # noqa: E402


@triton.jit
def double(x_ptr, out_ptr, n, BLOCK: tl.constexpr, MASKED: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if MASKED:
        x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
        tl.store(out_ptr + offsets, 2 * x, mask=offsets < n)
    else:
        x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
        tl.store(out_ptr + offsets, 2 * x)


def run_double(x: torch.Tensor, masked: bool = True) -> torch.Tensor:
    out = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 4),)](x, out, x.numel(), BLOCK=4, MASKED=masked)
    return out


def test_a_kernel_within_its_tensors_runs_as_ever_and_is_counted() -> None:
    x = torch.arange(6.0)
    with watching() as seen:
        out = run_double(x)
    assert torch.equal(out, 2 * x)
    assert (seen.loads(x), seen.stores(x)) == (6, 0)
    assert (seen.loads(out), seen.stores(out)) == (0, 6)
    assert seen.total().load_bytes == seen.total().store_bytes == 24
    assert seen.programs == 2
    assert seen.kernels == ["double"]
    assert seen.launches[0].arguments["n"] == 6


def test_a_missing_mask_on_the_last_tile_names_tensor_element_and_line() -> None:
    x = torch.arange(6.0)
    with pytest.raises(Fault) as raised, watching():
        run_double(x, masked=False)
    assert raised.value.problem == (
        "It writes element 6 of out_ptr, which has 6 elements, shape [6]: index [6]."
    )
    assert "mask" in raised.value.why
    here = Submission(load_curriculum().labs[0], ROOT / "tests/grader")
    assert "tl.store(out_ptr + offsets, 2 * x)" in locate(raised.value, here)


def test_memory_is_as_before_a_fault() -> None:
    """The tensor behind the one that is overrun lies next to it here, and keeps its values."""
    both = torch.zeros(10)
    x, out = torch.ones(6), both[:6]
    with pytest.raises(Fault), watching():
        double[(2,)](x, out, 6, BLOCK=4, MASKED=False)
    assert not both[6:].any()


@triton.jit
def copy_rows(x_ptr, out_ptr, stride, d, BLOCK: tl.constexpr, SHIFT: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * stride + columns - SHIFT, mask=columns < d)
    tl.store(out_ptr + row * d + columns, x, mask=columns < d)


def test_a_strided_view_is_valid_in_its_rows_alone() -> None:
    fused = torch.arange(12.0).reshape(3, 4)
    view, out = fused[:, :3], torch.empty(3, 3)
    with watching() as seen:
        copy_rows[(3,)](view, out, 4, 3, BLOCK=4, SHIFT=0)
    assert torch.equal(out, view)
    assert seen.loads(fused) == 9
    with (
        pytest.raises(
            Fault, match=r"element 12 of x_ptr, which has 11 elements from its first"
        ) as far,
        watching(),
    ):
        copy_rows[(4,)](view, torch.empty(4, 3), 4, 3, BLOCK=4, SHIFT=0)
    assert far.value.why.startswith(
        OUTSIDE_WHY
    )  # programs go on as they began, beyond the last row
    with (
        pytest.raises(Fault, match=r"offset 3 of x_ptr, .* 1 behind element \[0, 2\]") as between,
        watching(),
    ):
        copy_rows[(3,)](view, out, 4, 4, BLOCK=4, SHIFT=0)
    assert between.value.why.startswith(OUTSIDE_WHY)


@triton.jit
def add_rows(x_ptr, y_ptr, x_stride, y_stride, d, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    columns = tl.arange(0, BLOCK)[None, :]
    mask = columns < d
    y = tl.load(y_ptr + rows * y_stride + columns, mask=mask)
    tl.store(x_ptr + rows * x_stride + columns, y, mask=mask)


@pytest.mark.parametrize(("rows", "told"), [(1, "programs begin"), (4, "lanes of the tile are")])
def test_a_stride_of_another_tensor_is_told_by_its_name_and_not_as_a_missing_mask(
    rows, told
) -> None:
    x, y = padded_apart(torch.zeros(8, 4), torch.ones(8, 4))
    own, other = y.stride(0), x.stride(0)
    with pytest.raises(Fault) as raised, watching():
        add_rows[(8 // rows,)](x, y, other, other, 4, BLOCK=4, ROWS=rows)
    problem = raised.value.problem
    assert f"Neighbouring {told} {other} elements apart, which is x_stride and y_stride" in problem
    assert "x_ptr's stride of dimension 0" in problem
    assert f"'s strides are [{own}, 1]" in problem
    assert raised.value.why == STRIDE_WHY


@triton.jit
def one_element(x_ptr, out_ptr, at):
    tl.store(out_ptr, tl.load(x_ptr + at))


def test_an_access_that_may_be_either_is_told_as_both() -> None:
    with pytest.raises(Fault) as raised, watching():
        one_element[(1,)](padded_apart(torch.ones(2, 4))[0], torch.zeros(1), 7 + 4)
    assert raised.value.why.startswith(EITHER_WHY)


def test_a_run_that_leaves_an_inner_dimension_may_be_either() -> None:
    """Four rows of a tile on [2, 2, 4]: the third may lack a mask, or should be [1, 0] by its stride."""
    x, y = padded(torch.zeros(2, 2, 4), dims=(0,)), torch.ones(4, 4)
    with pytest.raises(Fault, match=r"offset 8 of x_ptr") as raised, watching():
        add_rows[(1,)](x, y, 4, 4, 4, BLOCK=4, ROWS=4)
    assert raised.value.why.startswith(EITHER_WHY)
    with pytest.raises(Fault) as advised, watching(why="Two strides lead to a row."):
        add_rows[(1,)](x, y, 4, 4, 4, BLOCK=4, ROWS=4)
    assert advised.value.why == "Two strides lead to a row."


def test_what_was_read_and_written_is_known_by_element_and_program() -> None:
    view, out = torch.arange(12.0).reshape(3, 4)[:, :3], torch.empty(3, 3)
    with watching(record=True) as seen:
        copy_rows[(3,)](view, out, 4, 3, BLOCK=4, SHIFT=0)
    assert seen.read_by(view, (1, 2)) == [(1, 0, 0)]
    assert seen.written_by(out, (2, 0)) == [(2, 0, 0)]
    assert seen.read_by(out, (2, 0)) == []
    assert seen.accesses[0].elements.tolist() == [0, 1, 2]
    assert (seen.accesses[0].argument, seen.accesses[0].deed) == ("x_ptr", "reads")


def test_an_address_before_the_tensor_is_caught_even_inside_its_storage() -> None:
    storage = torch.arange(12.0)
    with pytest.raises(Fault, match=r"It reads element -1 of x_ptr") as raised, watching():
        copy_rows[(1,)](storage[4:8], torch.empty(4), 4, 4, BLOCK=4, SHIFT=1)
    assert "below 0" in raised.value.why


def test_what_a_kernel_leaves_unwritten_is_nan() -> None:
    with watching():
        out = torch.empty(4)
        assert out.isnan().all()
        assert torch.empty_like(torch.zeros(3, dtype=torch.bfloat16)).isnan().all()
        assert torch.zeros(2).new_empty(3).isnan().all()
        assert (torch.empty(2, dtype=torch.int32) == 2**31 - 1).all()
    assert not torch.are_deterministic_algorithms_enabled()


@triton.jit
def block_copy(x_ptr, out_ptr, rows, columns, BOUND: tl.constexpr):
    source = tl.make_block_ptr(
        x_ptr, (rows, columns), (columns, 1), (tl.program_id(0) * 2, 0), (2, 4), (1, 0)
    )
    target = tl.make_block_ptr(
        out_ptr, (rows, columns), (columns, 1), (tl.program_id(0) * 2, 0), (2, 4), (1, 0)
    )
    tl.store(target, tl.load(source, boundary_check=(0, 1)), boundary_check=BOUND)


def test_block_pointers_are_checked_like_any_other() -> None:
    x, out = torch.arange(9.0).reshape(3, 3), torch.empty(3, 3)
    with watching() as seen:
        block_copy[(2,)](x, out, 3, 3, BOUND=(0, 1))
    assert torch.equal(out, x)
    assert seen.stores(out) == 9
    with pytest.raises(Fault, match=r"It writes element \d+ of out_ptr"), watching():
        block_copy[(2,)](x, out, 3, 3, BOUND=(1,))


@triton.jit
def tile_product(a_ptr, b_ptr, out_ptr, N: tl.constexpr, PRECISION: tl.constexpr):
    rows, columns = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    a, b = tl.load(a_ptr + rows * N + columns), tl.load(b_ptr + rows * N + columns)
    if PRECISION is None:
        tl.store(out_ptr + rows * N + columns, tl.dot(a, b))
    else:
        tl.store(out_ptr + rows * N + columns, tl.dot(a, b, input_precision=PRECISION))


def test_products_of_tiles_are_counted() -> None:
    a, b, out = torch.eye(16), torch.ones(16, 16), torch.empty(16, 16)
    with watching() as seen:
        tile_product[(1,)](a, b, out, N=16, PRECISION="ieee")
    assert (seen.dots, seen.flops) == (1, 2 * 16**3)
    assert torch.equal(out, b)


@pytest.mark.parametrize(
    ("dtype", "asked", "found"),
    [
        (torch.float32, "ieee", "ieee"),
        (torch.float32, "tf32", "tf32"),
        (torch.float32, None, "tf32"),
        (torch.float16, None, ""),
    ],
)
def test_the_precision_of_products_is_noted_where_it_means_something(dtype, asked, found) -> None:
    a, b, out = torch.eye(16, dtype=dtype), torch.ones(16, 16, dtype=dtype), torch.empty(16, 16)
    with watching() as seen:
        tile_product[(1,)](a, b, out, N=16, PRECISION=asked)
    assert seen.precisions == [found]


@triton.jit
def count_up(counter_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.atomic_add(counter_ptr + offsets % 2, 1.0, mask=offsets < n)


def test_atomic_operations_are_checked_and_counted() -> None:
    counter = torch.zeros(2)
    with watching() as seen:
        count_up[(1,)](counter, 5, BLOCK=8)
    assert counter.tolist() == [3.0, 2.0]
    assert seen.of(counter).atomics == 5
    with pytest.raises(Fault, match="counter_ptr"), watching():
        count_up[(1,)](counter[:1], 5, BLOCK=8)


@triton.jit
def through_addresses(table_ptr, out_ptr, N: tl.constexpr):
    pointer = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
    tl.store(out_ptr + tl.arange(0, N), tl.load(pointer + tl.arange(0, N)))


def test_a_pointer_out_of_memory_must_lie_in_a_tensor_that_is_known() -> None:
    x, out = torch.arange(4.0), torch.empty(4)
    table = torch.tensor([x.data_ptr()])
    with watching(also=(x,)):
        through_addresses[(1,)](table, out, N=4)
    assert torch.equal(out, x)
    with pytest.raises(Fault, match="lies in no tensor"), watching():
        through_addresses[(1,)](table, out, N=4)


@triton.jit
def helper(x):
    return tl.sum(x) / 0.0 if x.shape[0] == 1 else tl.max(x, axis=0)


@triton.jit
def with_helpers(x_ptr, out_ptr, N: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, N))
    total = tl.zeros([N], tl.float32)
    for _ in range(3):
        total += x / helper(x) + tl.sum(x)
    tl.store(out_ptr + tl.arange(0, N), total)


def test_helpers_work_inside_and_outside_again() -> None:
    x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    right = 3 * (x / 4 + 10)
    for _ in range(2):
        out = torch.empty(4)
        with watching():
            with_helpers[(1,)](x, out, N=4)
        assert torch.allclose(out, right)
        out = torch.empty(4)
        with_helpers[(1,)](x, out, N=4)
        assert torch.allclose(out, right)


@triton.jit
def unwritten(x_ptr):
    raise NotImplementedError("triton_ops task 9.1: not implemented yet; see chapter K")


def test_errors_of_a_kernel_arrive_as_what_they_are() -> None:
    with pytest.raises(NotImplementedError, match="not implemented"), watching():
        unwritten[(1,)](torch.zeros(1))


def test_a_stub_inside_a_kernel_is_a_stub_and_a_fault_keeps_its_line() -> None:
    """Whether or not the test watches: the interpreter's wrapping is undone by the recorder."""
    with pytest.raises(Exception, match="not implemented yet") as wrapped:
        unwritten[(1,)](torch.zeros(1))
    assert _stub_in(wrapped.value)["task"] == "9.1"
    here = Submission(load_curriculum().labs[0], ROOT / "tests/grader")
    with pytest.raises(Fault) as fault, watching():
        run_double(torch.arange(6.0), masked=False)
    why = explain(fault.value, "It doubles.", here, 10.0)
    assert "tl.store(out_ptr + offsets, 2 * x)" in why.where
    assert "out_ptr" in why.problem


def test_without_the_interpreter_nothing_can_be_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET=1"), watching():
        pass


@triton.jit
def inner(base, row, stride, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    return tl.load(base + row * stride + columns)


@triton.jit
def outer(x_ptr, out_ptr, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0) + 1
    tl.store(out_ptr + tl.arange(0, BLOCK), inner(x_ptr + 4, row, stride, BLOCK))


def test_a_fault_tells_what_the_variables_of_each_function_held() -> None:
    x = padded(torch.zeros(3, 4))
    with pytest.raises(Fault) as raised, watching():
        outer[(3,)](x, torch.zeros(4), 4, BLOCK=4)
    lines = raised.value.state.splitlines()
    assert lines[0] == "program (0, 0, 0)"
    assert (
        lines[1] == "in inner: base = x_ptr + 4, row = 1, stride = 4, BLOCK = 4, columns = 0 to 3"
    )
    assert lines[2] == "in outer: stride = 4, BLOCK = 4, row = 1"
    assert [name for _, _, name in raised.value.frames] == ["inner", "outer"]


def test_a_tile_that_begins_in_a_gap_tells_the_element_that_comes_next() -> None:
    x = padded(torch.zeros(3, 4))
    told = rf"The tile begins there; element \[1, 0\] lies at offset {x.stride(0)}\."
    with pytest.raises(Fault, match=told), watching():
        one_element[(1,)](x, torch.zeros(1), 4)
