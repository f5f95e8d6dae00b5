"""Each pin of constraints.txt installs on every Python that its marker lets it on.

What each package says of itself is read here, offline; `resolve.py` asks the index about the whole.
"""

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.setup.resolve import PYTHONS

ROOT = Path(__file__).parents[2]
# Every release that there is or may be: some packages want a later one, or all but one (3.14.1).
RELEASES = [f"{python}.{patch}" for python in PYTHONS for patch in range(21)]


def read_pins(text: str) -> list[Requirement]:
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [Requirement(line) for line in lines if line]


PINS = read_pins((ROOT / "constraints.txt").read_text("utf-8"))


def applies(marker: Marker | None, release: str) -> bool:
    python = release.rpartition(".")[0]
    return marker is None or marker.evaluate(
        {"python_version": python, "python_full_version": release}
    )


def faults(pins: list[Requirement]) -> Iterator[str]:
    """Of the pins that are installed here, what does not fit a release that they apply to."""
    for pin in pins:
        try:
            there = distribution(pin.name)
        except PackageNotFoundError:
            continue  # of another Python or platform
        if pin.specifier.contains(there.version, prereleases=True):
            needs = SpecifierSet(there.metadata.get("Requires-Python") or "")
            wrong = [one for one in RELEASES if applies(pin.marker, one) and one not in needs]
            if wrong:
                yield f"{pin} needs Python {needs}: it has no marker against {', '.join(wrong)}"


def test_a_pin_has_a_marker_against_each_python_that_it_does_not_install_on() -> None:
    assert list(faults(PINS)) == []


def test_a_pin_without_its_marker_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    there = SimpleNamespace(version="2.0", metadata={"Requires-Python": ">=3.11"})
    monkeypatch.setitem(globals(), "distribution", lambda _name: there)
    assert list(faults(read_pins('a==2.0; python_version >= "3.11"'))) == []
    assert list(faults(read_pins("a==1.0"))) == []  # not the one that is installed
    [fault] = faults(read_pins("a==2.0"))
    assert fault.startswith("a==2.0 needs Python >=3.11: it has no marker against 3.10.0, 3.10.1")


@pytest.mark.parametrize("release", [f"{python}.5" for python in PYTHONS])
def test_a_package_has_one_version_on_each_python(release: str) -> None:
    names = [canonicalize_name(pin.name) for pin in PINS if applies(pin.marker, release)]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_what_is_held_back_on_an_older_python_is_pinned_there_too() -> None:
    """Without a pin pip tries one version after another, for minutes, until all fit together."""
    later = {canonicalize_name(pin.name) for pin in PINS if applies(pin.marker, "3.14.0")}
    for release in ("3.10.0", "3.11.0"):
        there = {canonicalize_name(pin.name) for pin in PINS if applies(pin.marker, release)}
        assert later - there == set(), release


def test_the_classifiers_name_the_pythons_that_are_resolved() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    for python in PYTHONS:
        assert f'"Programming Language :: Python :: {python}"' in text
