"""Requests made from the server's own OpenAPI document, right ones and wrong ones, many of them.

`run` is what `test_schema.py` calls. For a long one, with this many
random requests to each endpoint and this seed: `python -m tests.server.schema_run 600 1`.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema

from tests.server.conftest import LiveServer, serving, within
from tests.server.tool_models import tool_model
from yaie.server.lenient.notes import IGNORED

CONTEXT = 64
"""Of the model behind it: nothing that a request may ask for takes long."""


@dataclass
class Outcome:
    """What came of it. failures: one line each, with how to send it again."""

    cases: int = 0
    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    failures: dict[str, str] = field(default_factory=dict)
    refusals: Counter[str] = field(default_factory=Counter)

    def take(self, event: events.ScenarioFinished) -> None:
        """Count what one scenario sent, and keep what failed."""
        for case_id, node in event.recorder.cases.items():
            response = event.recorder.find_response(case_id=case_id)
            if response is None:
                continue
            self.cases += 1
            self.statuses[event.recorder.label, response.status_code] += 1
            mode = node.value.meta and node.value.meta.generation.mode
            if response.status_code == 400 and str(mode) == "positive":
                message = response.json()["error"]["message"]
                self.refusals[f"{event.recorder.label} {message[:150]}"] += 1
        for case_id, checks in event.recorder.checks.items():
            response = event.recorder.find_response(case_id=case_id)
            is_lenient = response is not None and IGNORED in response.headers
            for check in checks:
                if is_lenient and check.name == "negative_data_rejection":
                    continue  # what is wrong was left out, and the answer says so
                if check.failure_info is not None:
                    failure = check.failure_info.failure
                    key = f"{event.recorder.label}: {check.name}: {failure.title}"
                    told = f"{failure.message}\n{check.failure_info.code_sample}"
                    self.failures.setdefault(key, told[:4000])


def run(
    url: str, max_examples: int, *, seed: int = 1, coverage: bool = True, paths: str | None = None
) -> Outcome:
    """Send the document's examples, its corner cases (coverage), and random requests.

    max_examples: random ones for each endpoint. paths: a pattern of those that are meant.
    """
    config = SchemathesisConfig.from_dict(
        {
            "seed": seed,
            "generation": {"mode": "all", "max-examples": max_examples, "database": "none"},
            "phases": {
                "examples": {"enabled": True},
                "coverage": {"enabled": coverage},
                "fuzzing": {"enabled": max_examples > 0},
                "stateful": {"enabled": False},
            },
            # A right body may still be refused: too long a prompt, a tool that is not among the tools.
            # A wrong body may also be too large (413).
            "checks": {
                "positive_data_acceptance": {"expected-statuses": ["2xx", 400, 404]},
                "negative_data_rejection": {"expected-statuses": ["4xx"]},
            },
        }
    )
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", config=config)
    if paths is not None:
        schema = schema.include(path_regex=paths)
    outcome = Outcome()
    for event in from_schema(schema).execute():
        if isinstance(event, events.ScenarioFinished):
            outcome.take(event)
        elif isinstance(event, events.NonFatalError):
            outcome.failures[f"{event.label}: error"] = str(event.value)
    return outcome


@contextmanager
def small_server() -> Iterator[LiveServer]:
    """A server on a tiny model that may call tools. In the end nothing is left behind in its engine."""
    from yaie.engine.llm_engine import LLMEngine

    with tempfile.TemporaryDirectory() as folder:
        model = tool_model("hermes", Path(folder) / "tiny-llama")

        def load() -> LLMEngine:
            return LLMEngine(model=str(model), num_blocks=1024, threads=1, max_model_len=CONTEXT)

        with serving(load) as server:
            yield server
            within(10, lambda: not server.llm.has_work)
            server.llm.check()


def main() -> int:
    """Run, and tell what came of it."""
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with small_server() as server:
        outcome = run(server.url, int(sys.argv[1]) if len(sys.argv) > 1 else 600, seed=seed)
    for (label, status), count in sorted(outcome.statuses.items()):
        print(f"{count:6} {status} {label}")
    print("\nright by the document, and refused:")
    for message, count in outcome.refusals.most_common():
        print(f"{count:6} {message}")
    for failure, told in outcome.failures.items():
        print(f"\nFAILED {failure}\n{told}")
    print(f"\n{outcome.cases} cases, {len(outcome.failures)} failures")
    return min(len(outcome.failures), 1)


if __name__ == "__main__":
    sys.exit(main())
