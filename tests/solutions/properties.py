"""How hard the property tests try: quick and repeatable, or as told by YAIE_EXAMPLES=5000."""

import os

from hypothesis import HealthCheck, settings

_EXAMPLES = os.environ.get("YAIE_EXAMPLES")


def effort(max_examples: int, steps: int = 30) -> settings:
    """Settings of one property test: its number of examples, and the length of a state machine's run.

    With YAIE_EXAMPLES every test runs that many, drawn anew each time.
    """
    return settings(
        max_examples=int(_EXAMPLES or max_examples),
        stateful_step_count=steps,
        derandomize=_EXAMPLES is None,
        database=None,
        deadline=None,
        print_blob=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
