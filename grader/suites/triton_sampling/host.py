"""What host code may not do around its launches: wait for the device, and make tensors elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from grader.kit.expect import Fault

READS = (
    "item tolist numpy cpu __bool__ __int__ __float__ __index__ __contains__ "
    "nonzero masked_select unique equal"
).split()
"""Methods of a tensor for which the host waits until the device has got that far."""
MAKES = "empty full zeros ones tensor arange".split()
"""Functions of PyTorch that make a tensor on the host unless they are told a device."""
WAITS = (
    "The host then waits for all that the device still has to do, in every step, and the call does not "
    "fit in a CUDA graph: what is launched may depend on shapes and on the batch's flags (any_top_k, "
    "penalties), not on what tensors hold."
)
ELSEWHERE = (
    "Without device=logits.device a tensor lies on the host, and a kernel of the GPU cannot read it. "
    "logits.new_full and its like make one beside the logits."
)


@contextmanager
def on_the_device(part: ModuleType) -> Iterator[None]:
    """The part's host code may read no tensor, and says of each that it makes where it lies."""
    folder = str(part.__file__).rpartition("__init__")[0]

    def refusing(function: Any, problem: str, why: str) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            is_theirs = sys._getframe(1).f_code.co_filename.startswith(folder)
            if is_theirs and kwargs.get("device") is None:
                raise Fault(problem, why=why)
            return function(*args, **kwargs)

        return called

    with ExitStack() as stack:
        for name in READS:
            problem = f"the host reads what a tensor of the device holds ({name.strip('_')})"
            method = refusing(getattr(Tensor, name), problem, WAITS)
            stack.enter_context(patch.object(Tensor, name, method))
        for name in MAKES:
            problem = f"torch.{name} makes a tensor, and is told no device"
            function = refusing(getattr(torch, name), problem, ELSEWHERE)
            stack.enter_context(patch.object(torch, name, function))
        yield
