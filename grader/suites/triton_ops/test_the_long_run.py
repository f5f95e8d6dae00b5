"""All tasks beyond one call: the engine has one object, which computes with all layers of all steps."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from grader.kit import Fault, Mismatch, kernels, start_script, task, watch
from grader.kit.kernels import expect_near, random
from grader.kit.rerun import passes
from grader.kit.standing import expect_results_stand
from grader.suites.triton_ops.launches import F16, F32, expect_stored, given, pool, run

OWN = (
    "On a fresh object this call is right. Here others came before it, with another shape, weight, eps "
    "or table: something of theirs is kept in the object. Layers differ in all of these, and a weight "
    "may be loaded anew where it lies, so a call goes by its arguments alone."
)
IN_OBJECT = (
    "On a fresh object this call is right, and here too without what an earlier call has left in the "
    "object's attribute {}. A call goes by its arguments alone."
)
LAYERS = ((2, 6, F16, 1e-5), (3, 40, F32, 1e-2), (2, 6, F16, 0.5), (2, 6, F16, 1e-1))
"""Of each call: rows, their length, the dtype, eps."""
TURNS = ((2, 2, 1, 2), (3, 5, 3, 3), (2, 2, 1, 2), (2, 2, 1, 2))
"""Of each call: tokens, heads of q and of k, pairs of a head that turn."""


def on_one_object(part: ModuleType, count: int, call: Callable[[Any, int], Any], what: str) -> None:
    """Calls 0 to count - 1 are right on one object, and their results stay.

    call: makes and checks the call with a number on the object that it is given, and returns the result.
    """
    shared = watch(part.LayerKernels(), "kernels")

    def told(number: int) -> Any:
        try:
            return call(shared, number)
        except Mismatch as error:
            is_told = error.why and not isinstance(error, Fault)
            if not is_told and passes(lambda: call(part.LayerKernels(), number)):
                name = kept_in(part, number, call)
                error.why = IN_OBJECT.format(name) if name else OWN
            raise

    expect_results_stand([lambda n=n: told(n) for n in range(count)], what)  # type: ignore[misc]
    start_script()


def kept_in(part: ModuleType, number: int, call: Callable[[Any, int], Any]) -> str:
    """The attribute that makes this call wrong behind those before it; "" if it is none, or several."""
    found = []
    for name in _left_in(part, number, call):
        used, fresh = _used(part, number, call), vars(part.LayerKernels())
        if name in fresh:
            vars(used)[name] = fresh[name]
        else:
            vars(used).pop(name, None)
        if passes(lambda used=used: call(used, number)):  # type: ignore[misc]
            found.append(name)
    return found[0] if len(found) == 1 else ""


def _left_in(part: ModuleType, number: int, call: Callable[[Any, int], Any]) -> list[str]:
    used = _used(part, number, call)
    return list(vars(used)) if hasattr(used, "__dict__") else []


def _used(part: ModuleType, number: int, call: Callable[[Any, int], Any]) -> Any:
    """An object of its own that has had the calls before this one."""
    kernels = part.LayerKernels()
    for before in range(number):
        passes(lambda before=before: call(kernels, before))  # type: ignore[misc]
    return kernels


def earlier(
    before: list[tuple[int, Tensor, float]],
    weight: Tensor,
    eps: float,
    norm: Callable[[Tensor, float], Tensor],
) -> dict[str, Callable[[], Tensor]]:
    """What a norm gives with the weight, or with the eps, of an earlier call. before: number, weight and
    eps of each."""
    kinds: dict[str, Callable[[], Tensor]] = {}
    for number, old, old_eps in before:
        of_call = f"of call {number + 1}"
        place = " The two weights lie at the same place: a weight is loaded anew where it lies."
        kinds[f"This is the norm with the weight {of_call}, which was kept.{place}"] = (
            lambda old=old: norm(old, eps)  # type: ignore[misc]
        )
        kinds[f"This is the norm with eps = {old_eps:g} {of_call}, which was kept."] = (
            lambda old_eps=old_eps: norm(weight, old_eps)  # type: ignore[misc]
        )
    return kinds


@task("9.1")
def test_norms_of_many_calls(part: ModuleType) -> None:
    """A norm goes by its own arguments, whatever was normed before, and its result stays."""
    weight = random(6, seed=9, dtype=F16)
    given_before: list[tuple[int, Tensor, float]] = []

    def norm(on: Any, number: int) -> Tensor:
        rows, d, dtype, eps = LAYERS[number]
        gain = weight.fill_(number + 1.0) if d == 6 else random(d, seed=9, dtype=dtype)
        x = random(rows, d, seed=number, dtype=dtype)
        got, _ = run(part, "rms_norm", x, gain, eps, on=on)
        what = f"the norm of call {number + 1}, of {rows} rows of {d}"
        kinds = earlier(given_before, gain, eps, lambda *given: kernels.rms_norm(x, *given))
        given_before.append((number, gain.clone(), eps))
        expect_near(got, kernels.rms_norm(x, gain, eps), dtype, what, kinds=kinds)
        result: Tensor = got
        return result

    on_one_object(part, len(LAYERS), norm, "rms_norm")


@task("9.2")
def test_fused_norms_of_many_calls(part: ModuleType) -> None:
    """An addition and its norm go by their own arguments, whatever came before."""
    weight = random(6, seed=9, dtype=F16)
    given_before: list[tuple[int, Tensor, float]] = []

    def norm(on: Any, number: int) -> tuple[Tensor, Tensor]:
        rows, d, dtype, eps = LAYERS[number]
        gain = weight.fill_(number + 1.0) if d == 6 else random(d, seed=9, dtype=dtype)
        x, residual = (random(rows, d, seed=number + more, dtype=dtype) for more in (0, 9))
        normed, total = kernels.fused_add_rms_norm(x, residual, gain, eps)
        with given(part, "normalise"):
            run(part, "fused_add_rms_norm", x, residual, gain, eps, on=on)
        what = f"of call {number + 1}, of {rows} rows of {d}"
        kinds = earlier(given_before, gain, eps, lambda *given: kernels.rms_norm(total, *given))
        given_before.append((number, gain.clone(), eps))
        expect_near(residual, total, dtype, f"the sum {what}")
        expect_near(x, normed, dtype, f"the norm {what}", kinds=kinds)
        return x, residual

    on_one_object(part, len(LAYERS), norm, "fused_add_rms_norm")


@task("9.3")
def test_gates_of_many_calls(part: ModuleType) -> None:
    """silu_mul goes by its own argument, whatever came before, and its result stays."""

    def gate(on: Any, number: int) -> Tensor:
        rows, d, dtype, _ = LAYERS[number]
        x = random(rows, 2 * d, seed=number, dtype=dtype)
        got, _ = run(part, "silu_mul", x, on=on)
        what = f"silu_mul of call {number + 1}, of {rows} rows of {2 * d}"
        expect_near(got, kernels.silu_mul(x), dtype, what)
        result: Tensor = got
        return result

    on_one_object(part, len(LAYERS), gate, "silu_mul")


def tables_of(number: int, half: int) -> tuple[Tensor, Tensor]:
    """cos and sin, of each call with another base, as layers with and without a window have them."""
    return kernels.rotary_tables(9, half, base=10.0 ** (number + 1))


def heads_of(number: int) -> tuple[list[Tensor], Tensor]:
    """q, k and v of a call, with 2 dimensions of a head that do not turn, and positions."""
    tokens, heads, kv_heads, half = TURNS[number]
    counts = heads, kv_heads, kv_heads
    qkv = [random(tokens, n, 2 * half + 2, seed=3 * number + i) for i, n in enumerate(counts)]
    return qkv, torch.arange(tokens) + number + 1


@task("9.4")
def test_rotations_of_many_calls(part: ModuleType) -> None:
    """A rotation goes by its own tables, positions and heads, whatever was turned before."""

    def turn(on: Any, number: int) -> list[Tensor]:
        (q, k, _), positions = heads_of(number)
        tables = tables_of(number, TURNS[number][3])
        right = [kernels.rope(x, positions, *tables) for x in (q, k)]
        run(part, "rope", q, k, positions, *tables, on=on)
        for name, x, exact in zip("qk", (q, k), right, strict=True):
            expect_near(x, exact, F32, f"{name} of call {number + 1}, of shape {list(x.shape)}")
        return [q, k]

    on_one_object(part, len(TURNS), turn, "rope")


@task("9.5")
def test_stores_of_many_calls(part: ModuleType) -> None:
    """Keys and values go to the pool, the block and the slot of their own call."""

    def store(on: Any, number: int) -> tuple[Tensor, Tensor]:
        (_, k, v), _ = heads_of(number)
        blocks = pool(3, 2 + number, k.shape[1], k.shape[2])
        slots = torch.arange(len(k)) + number + 1
        right = kernels.store_kv(k, v, *blocks, slots)
        run(part, "store_kv", k, v, *blocks, slots, on=on)
        expect_stored(blocks, right, "")
        return blocks

    on_one_object(part, len(TURNS), store, "store_kv")


@task("9.6")
def test_rotations_and_stores_of_many_calls(part: ModuleType) -> None:
    """rope_and_store goes by its own tables, heads, pool and slots, whatever came before."""

    def turn(on: Any, number: int) -> tuple[Tensor, Tensor, Tensor]:
        (q, k, v), positions = heads_of(number)
        tables, blocks = tables_of(number, TURNS[number][3]), pool(3, 2 + number, *k.shape[1:])
        slots = torch.arange(len(k)) + number + 1
        turned = [kernels.rope(x, positions, *tables) for x in (q, k)]
        right = kernels.store_kv(turned[1].to(k.dtype), v, *blocks, slots)
        with given(part, "turn_heads"):
            run(part, "rope_and_store", q, k, v, positions, *tables, *blocks, slots, on=on)
        expect_near(q, turned[0], F32, f"q of call {number + 1}, of shape {list(q.shape)}")
        expect_stored(blocks, right, "")
        return q, *blocks

    on_one_object(part, len(TURNS), turn, "rope_and_store")
