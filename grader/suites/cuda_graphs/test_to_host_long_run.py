"""Task 17.6 beyond one copy: what has arrived stays, and nothing is left behind."""

from typing import Any

import torch

from grader.kit import task
from grader.kit.storage import expect_calls_apart
from grader.suites.cuda_graphs.still import StillDevice


@task("17.6")
def test_what_has_arrived_stays(part: Any) -> None:
    """What has arrived is the reader's: a later copy does not overwrite it, and nothing is kept."""
    device = StillDevice()

    def get(number: int) -> Any:
        return part.ToHost(torch.tensor([number, 10 * number]), device).get()

    expect_calls_apart({"ToHost and get": get})
