"""A pytest plugin that writes down which lines of `yaie` each test reaches, in its subprocesses too.

Needs two variables: MUTANTS_FOLDER, where to write, and MUTANTS_RC, coverage's settings, by which Python
processes that a test starts record themselves. Each worker (`pytest -n 2`) writes for itself. What the
setup of a fixture reaches that several tests share is reached by all of them.
"""

import json
import os
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import coverage
import pytest

CONTEXT = "MUTANTS_CONTEXT"
"""Tells a subprocess for whom it runs; `settings` reads it."""


def settings(source: Path, folder: Path) -> str:
    """Coverage's, for the tests and their subprocesses. A process that is ended by a signal or by
    `os._exit` writes what it has recorded as well; one that is killed cannot."""
    return (
        f"[run]\nsource = {source}\ndata_file = {folder / 'data'}\nparallel = true\n"
        f"context = ${{{CONTEXT}-}}\nsigterm = true\npatch = _exit\ncore = ctrace\n"
    )


def pytest_configure(config: pytest.Config) -> None:
    if getattr(config.option, "numprocesses", None):  # the workers run the tests
        return
    worker = getattr(config, "workerinput", {}).get("workerid", "main")
    config.pluginmanager.register(Recorder(worker, Path(os.environ["MUTANTS_FOLDER"])))


class Recorder:
    """A context of coverage for each test, and one for each fixture that tests share."""

    def __init__(self, worker: str, folder: Path) -> None:
        self._worker = worker
        self._folder = folder
        self._ids: dict[str, str] = {}  # of tests and fixtures, by name: their contexts
        self._context = ""
        self._tests: dict[str, dict[str, Any]] = {}
        self._users: defaultdict[str, list[str]] = defaultdict(list)
        os.environ[CONTEXT] = ""
        self._coverage = coverage.Coverage(config_file=os.environ["MUTANTS_RC"])
        self._coverage.start()
        os.environ["COVERAGE_PROCESS_START"] = os.environ["MUTANTS_RC"]

    def _switch(self, context: str) -> None:
        self._context = os.environ[CONTEXT] = context
        self._coverage.switch_context(context)

    def _id(self, name: str) -> str:
        return self._ids.setdefault(name, f"{self._worker}-{len(self._ids)}")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._tests[item.nodeid] = {"id": self._id(item.nodeid), "seconds": 0.0, "passed": False}
        for definitions in item._fixtureinfo.name2fixturedefs.values():  # type: ignore[attr-defined]
            for definition in definitions:
                self._users[_name(definition)].append(item.nodeid)
        self._switch(self._id(item.nodeid))
        try:
            return (yield)
        finally:
            self._switch("")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        before = self._context
        self._switch(self._id(_name(fixturedef)))
        try:
            return (yield)
        finally:
            self._switch(before)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self._tests[report.nodeid]
        test["seconds"] += report.duration
        if report.when == "call":
            test["passed"] = report.passed
        elif report.failed:
            test["passed"] = False

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        os.environ.pop("COVERAGE_PROCESS_START", None)
        self._coverage.stop()
        self._coverage.save()
        fixtures = {self._ids[name]: own for name, own in self._users.items() if name in self._ids}
        told = {"tests": self._tests, "fixtures": fixtures}
        (self._folder / f"tests-{self._worker}.json").write_text(json.dumps(told), "utf-8")


def _name(definition: Any) -> str:
    """Of a fixture: where it is defined, and its name."""
    return f"{definition.baseid}::{definition.argname} (fixture)"
