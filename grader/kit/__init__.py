"""What the suites are written with.

task("4.2")      which task a test grades; its docstring is the claim that the report quotes
expect(...)      a check that explains itself
watch(obj, ...)  an object whose calls are written down, so that a failure is a script of calls
examples(...)    a Hypothesis test; run_machine(...) a Hypothesis state machine

For kernels, imported on their own because they need torch and triton: `kernels` (what must come out, in
float64), `layout` (views with gaps, strides that were mixed up), `triton_watch` and `cuda_watch` (every
address checked, all work counted). For ranks: `rank_links` and `rank_group` (in one process, where a
deadlock is known at once), `rank_processes` (real ones, over gloo).
"""

from grader.kit.cost import count_calls
from grader.kit.expect import Fault, Mismatch, expect, expect_close, expect_equal, expect_raises
from grader.kit.generate import Machine, examples, run_machine
from grader.kit.script import note, quietly, start_script, watch
from grader.kit.task import task

__all__ = [
    "Fault",
    "Machine",
    "Mismatch",
    "count_calls",
    "examples",
    "expect",
    "expect_close",
    "expect_equal",
    "expect_raises",
    "note",
    "quietly",
    "run_machine",
    "start_script",
    "task",
    "watch",
]
