"""Task 17.6: a tensor on its way to the host."""

from typing import Any

import torch
from torch import Tensor

from grader.kit import expect_equal, note, start_script, task
from grader.suites.cuda_graphs.device import UNREAD, StandIn
from grader.suites.cuda_graphs.waited import expect_no_wait

EARLY = (
    "The copy is queued, like a kernel: the host's memory holds nothing of it until the device has "
    "come there (-77 stands in it until then, here). An event that was recorded behind the copy says "
    "when; wait for it before you read."
)
AT_ONCE = (
    "The copy belongs into the queue when the object is made: right behind the step that drew. What is "
    "queued later may overwrite the tensor, as the next replay does."
)
NO_WAIT = "The host goes on at once. It waits in `get`, and for this copy alone."
LATE_EVENT = (
    "Two objects were made, and not two events recorded: record one in each, right behind its copy. An "
    "event that is recorded in `get` stands behind what was queued meanwhile."
)
LATER = (
    "`get` waits for the event behind its own copy. To wait for everything is to wait for the next "
    "step too, which is what overlap is there to avoid."
)


def tensor_of(device: StandIn, *values: int, dtype: torch.dtype = torch.int64) -> Tensor:
    tensor = torch.tensor(values, dtype=dtype)
    device.hold(tensor)
    note(f"tensor = {list(values)} on the device")
    return tensor


def value(device: StandIn, got: Any) -> Any:
    with device.aside():
        return got.tolist() if isinstance(got, Tensor) else got


def unread(got: Any) -> bool:
    """Whether it is what stands in the host's memory before a copy has arrived."""
    return str(UNREAD) in str(got)


@task("17.6")
def test_it_arrives(part: Any) -> None:
    """`get` gives the tensor's values, whatever its shape and dtype, also when asked again."""
    start_script()
    device = StandIn()
    one, flags = tensor_of(device, 5, 9, -1), tensor_of(device, 1, 0, dtype=torch.bool)
    wide = torch.arange(6, dtype=torch.float32).view(2, 3)
    device.hold(wide)
    with device.running():
        for tensor in (one, flags, wide, wide[:, 1], wide.t(), one[:0], one[0]):
            right = value(device, tensor)
            note(f"ToHost of shape {list(tensor.shape)}, strides {list(tensor.stride())}")
            on_its_way = part.ToHost(tensor, device)
            for _ in range(2):
                got = value(device, on_its_way.get())
                expect_equal(got, right, "what get() gives", why=EARLY * unread(got))


@task("17.6")
def test_the_value_of_its_moment(part: Any) -> None:
    """It is the value at the moment when the object was made, though the tensor is overwritten."""
    start_script()
    device = StandIn()
    tensor = tensor_of(device, 1, 2)
    with device.running():
        sent = []
        for step in range(3):
            source = device.pinned(2, dtype=torch.int64)
            with device.aside():
                source.copy_(torch.tensor([step, 10 * step]))
            tensor.copy_(source, non_blocking=True)
            note(f"a step is queued that makes it {[step, 10 * step]}; ToHost")
            sent.append(part.ToHost(tensor, device))
        for step, on_its_way in enumerate(sent):
            got = value(device, on_its_way.get())
            expect_equal(got, [step, 10 * step], f"what get() of step {step} gives", why=AT_ONCE)


@task("17.6")
def test_nobody_waits_for_more(part: Any) -> None:
    """Making one waits for nothing; `get` waits for its own copy, and for no step behind it."""
    start_script()
    device = StandIn()
    tensor = tensor_of(device, 4)
    with device.running():
        first = part.ToHost(tensor, device)
        expect_no_wait(device.waited, "when the object is made", NO_WAIT)
        what = "copies that are done when the object is made"
        expect_equal(device.num_done, 0, what, why=NO_WAIT)
        source = device.pinned(1, dtype=torch.int64)
        tensor.copy_(source, non_blocking=True)
        second = part.ToHost(tensor, device)
        note("first.get(), with another step in the queue")
        is_late = device.num_recorded < 2
        got = value(device, first.get())
        expect_equal(got, [4], "what get() of the first gives", why=EARLY * unread(got))
        expect_no_wait(device.waited, "in the first get()", LATER)
        what = "copies and steps that are done after the first get()"
        expect_equal(device.num_done, 1, what, why=f"{LATE_EVENT} {LATER}" if is_late else LATER)
        value(device, second.get())
        expect_no_wait(device.waited, "in the second get()", LATER)
