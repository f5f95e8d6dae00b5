"""Task 16.3 beyond one plan: contexts of a million keys, and nothing that is left behind."""

from types import ModuleType

from grader.kit import start_script, task
from grader.kit.memory import expect_keeps_nothing
from grader.suites.cuda_paged_attention.test_plan import WAVES, expect_plan


@task("16.3")
def test_plans_of_many_calls(part: ModuleType) -> None:
    """A plan is made for its call, of contexts of any length, and is not kept."""
    for rows, keys in ((8, 1_000_000), (300, 300), (8, 4_097)):
        expect_plan(part, rows, keys, 132, f"{WAVES[0].upper()}{WAVES[1:]}.")
    start_script()
    expect_keeps_nothing(lambda: part.plan_split(8, 16_384, 528), "plan_split")
