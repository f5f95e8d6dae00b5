"""The switch between a learner's parts and the reference."""

import sys
from pathlib import Path

import pytest

from tests.learner import hand_in, record_pass
from yaie.core.errors import ConfigError, PartError
from yaie.curriculum.progress import Progress
from yaie.parts import LABS, PLAIN_LABS, Part, load_part, load_parts, open_tasks, whose


def part_of(lab: str, mine: str = "auto", progress: Progress | None = None) -> Part:
    return next(part for part in load_parts(mine, progress).table() if part.lab == lab)


@pytest.mark.parametrize("mine", ["auto", "none"])
def test_without_a_forced_part_the_reference_runs(mine: str) -> None:
    table = load_parts(mine).table()
    assert [part.lab for part in table] == list(LABS)
    assert {part.owner for part in table} == {"reference"}
    assert all(part.module == f"solutions.{part.lab}" for part in table)


@pytest.mark.parametrize("lab", LABS)
def test_a_forced_stub_names_lab_task_and_chapter(lab: str) -> None:
    with pytest.raises(PartError, match=rf"{lab} task \d+\.\d+: not implemented yet; see chapter"):
        load_parts(lab)


def test_all_demands_every_part() -> None:
    with pytest.raises(PartError, match="unfinished"):
        load_parts("all")


@pytest.mark.parametrize("mine", ["samplr", "sampler,", "", "sampler,all"])
def test_a_lab_that_does_not_exist_is_refused_with_the_list(mine: str) -> None:
    with pytest.raises(ConfigError, match="radix_tree") as error:
        load_parts(mine)
    assert error.value.param == "mine"


def test_a_finished_part_runs_as_yours_beside_the_reference(labs: Path) -> None:
    hand_in(labs, "sampler")
    parts = load_parts("sampler")
    owners = {part.lab: part.owner for part in parts.table()}
    assert owners == {lab: "yours" if lab == "sampler" else "reference" for lab in LABS}
    assert parts["sampler"].__name__ == "labs.sampler"


def test_a_part_that_cannot_be_imported_names_file_and_line(labs: Path) -> None:
    (labs / "sampler").mkdir()
    (labs / "sampler/__init__.py").write_text("x = 1\nraise ValueError('mine')\n")
    with pytest.raises(PartError, match=r"sampler.*ValueError: mine.*__init__\.py, line 2"):
        load_parts("sampler")


def test_a_stub_in_cuda_is_unfinished_like_one_in_python(labs: Path) -> None:
    folder = hand_in(labs, "sampler")
    (folder / "draw.cu").write_text(
        '    NOT_IMPLEMENTED("sampler task 1.6: not implemented yet; see chapter X");\n'
    )
    with pytest.raises(PartError, match=r"unfinished: sampler task 1\.6: not implemented yet"):
        load_parts("sampler")
    assert open_tasks("sampler") == ["1.6"]


def test_a_part_that_is_missing_says_how_to_get_it(labs: Path) -> None:
    with pytest.raises(PartError, match="make stubs"):
        load_parts("sampler")


def test_labs_that_were_never_generated_say_how_to_get_them(
    labs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "labs", None)
    with pytest.raises(PartError, match="make stubs"):
        load_parts("sampler")


def test_auto_takes_a_part_whose_tasks_have_all_passed(labs: Path) -> None:
    hand_in(labs, "sampler")
    record_pass(labs, "sampler")
    part = part_of("sampler")
    assert (part.owner, part.module) == ("yours", "labs.sampler")
    assert part.reason == "all tasks passed"
    assert part.folder == labs / "sampler"


def test_auto_leaves_a_part_that_has_passed_in_part(labs: Path) -> None:
    hand_in(labs, "radix_tree")
    record_pass(labs, "radix_tree", tasks=2)
    part = part_of("radix_tree")
    assert (part.owner, part.reason) == ("reference", "2 of 5 tasks passed")


def test_auto_leaves_a_part_that_changed_since_it_passed(labs: Path) -> None:
    folder = hand_in(labs, "sampler")
    record_pass(labs, "sampler")
    (folder / "noise.py").open("a").write("\n# a thought\n")
    part = part_of("sampler")
    assert (part.owner, part.reason) == ("reference", "changed since it was graded")


def test_reasons_say_why_the_reference_runs(labs: Path) -> None:
    hand_in(labs, "sampler")
    assert part_of("sampler").reason == "not graded yet"
    assert part_of("scheduler").reason == "not in labs/"
    assert part_of("sampler", "none").reason == "chosen by --mine none"
    assert part_of("scheduler", "sampler").reason == "not in --mine"
    assert part_of("sampler", "sampler").reason == "forced by --mine"


def test_progress_can_be_that_of_another_place(labs: Path, tmp_path: Path) -> None:
    hand_in(labs, "sampler")
    record_pass(labs, "sampler")
    elsewhere = Progress.load(tmp_path / "elsewhere")
    assert part_of("sampler", progress=elsewhere).reason == "not graded yet"


@pytest.mark.parametrize("fault", ["raise ValueError('mine')", "raise SystemExit(3)", "x = ("])
def test_a_passed_part_that_cannot_be_imported_is_not_replaced_in_silence(
    labs: Path, fault: str
) -> None:
    hand_in(labs, "sampler", f"\n{fault}\n")
    record_pass(labs, "sampler")
    with pytest.raises(
        PartError, match=r"your part sampler.*\(labs/sampler/__init__\.py, line \d+\)"
    ):
        load_parts("auto")


def test_one_part_can_be_loaded_without_the_others() -> None:
    part = load_part("api_server", "none")
    assert (part.module, part.reason) == ("solutions.api_server", "chosen by --mine none")
    with pytest.raises(PartError, match="api_server task 8"):
        load_part("api_server", "all")


def test_an_engine_asks_for_the_labs_that_it_runs_on() -> None:
    table = load_parts("none", labs=("sampler", "triton_ops")).table()
    assert [part.lab for part in table] == ["sampler", "triton_ops"]


def test_all_demands_no_more_than_what_is_asked_for(labs: Path) -> None:
    hand_in(labs, "sampler")
    (part,) = load_parts("all", labs=("sampler",)).table()
    assert part.is_yours


def test_kernel_labs_are_those_that_no_cpu_runs_as_they_are() -> None:
    assert (
        *LABS[:8],
        "cuda_graphs",
        "speculative",
        "quantization",
        "tensor_parallel",
        "structured_output",
        "state_cache",
    ) == PLAIN_LABS
    assert all(lab.startswith(("triton_", "cuda_")) for lab in set(LABS) - set(PLAIN_LABS))


def test_whose_part_it_would_be_is_known_without_importing_it(labs: Path) -> None:
    hand_in(labs, "sampler", "\nraise ValueError('imported')\n")
    record_pass(labs, "sampler")
    assert whose("sampler", "auto") == ("yours", "all tasks passed")
    assert whose("sampler", "none") == ("reference", "chosen by --mine none")
