"""What a chapter says is given: every call and field that its lab's reference uses."""

import importlib
import inspect
import json
from pathlib import Path

import pytest

from book.tools import given, given_names
from book.tools.given import GivenError, one_line, render_given
from book.tools.given_cuda import cuda_names, meaning_in
from book.tools.mdbook import ROOT
from grader.regions import find_regions
from yaie.curriculum.manifest import load_curriculum


@pytest.mark.parametrize("key", load_curriculum().keys)
def test_every_name_of_a_lab_is_explained(key: str) -> None:
    page = render_given(key)
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert len(rows) > 3
    assert not [row for row in rows if row.rstrip("| ").endswith("`") and row.count("|") < 3]
    assert f"{{{{#given {key}}}}}" in "".join(
        path.read_text("utf-8") for path in (ROOT / "book/src/labs").glob("*.md")
    )


def test_what_is_used_is_named_and_what_is_written_is_not() -> None:
    names = set(given_names.names_of(load_curriculum()["radix_tree"]))
    assert "solutions.radix_tree.node.Node.children" in names
    assert "solutions.radix_tree.radix_tree.RadixTree._path_up" in names  # given, in the same file
    assert not any("match_prefix" in name or "_tick" in name for name in names)
    assert not any(name.startswith("builtins") for name in names)


@pytest.fixture(scope="module")
def server_names() -> set[str]:
    return set(given_names.names_of(load_curriculum()["api_server"]))


@pytest.mark.nightly
def test_a_field_is_named_by_its_class_and_not_by_the_method_that_assigns_it(
    server_names: set[str],
) -> None:
    assert "yaie.core.output.RequestOutput.stop_reason" in server_names  # assigned by `merge`
    assert "starlette.responses.Response.raw_headers" in server_names
    assert not [name for name in server_names if "merge." in name or "init_headers." in name]


def test_a_field_has_its_own_words_and_no_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    place, shown, meaning = given.explained(
        "yaie.core.output.RequestOutput.finish_reason", "api_server"
    )
    assert place == "`RequestOutput`, in `yaie/core/output.py`"
    assert (shown, meaning) == ("finish_reason", "Set in a request's last output, and only there.")
    monkeypatch.setattr(given, "words", dict)
    _, shown, meaning = given.explained(
        "yaie.core.output.RequestOutput.merge.nothing", "api_server"
    )
    assert (shown, meaning) == ("nothing", "")  # not what `merge` does


@pytest.mark.nightly
def test_what_holds_a_task_is_not_given(server_names: set[str]) -> None:
    package = "solutions.api_server."
    written = {"leaving.Answering", "replies.ChatReply", "replies.TextReply", "sending.EventStream"}
    assert not server_names & {package + name for name in written}


@pytest.mark.nightly
def test_a_method_that_the_learner_overrides_is_not_given(server_names: set[str]) -> None:
    reply = "solutions.api_server.replies.Reply."
    assert not server_names & {reply + name for name in ("_choice", "_opening", "_piece")}
    assert reply + "_head" in server_names  # complete, in the same class


@pytest.mark.nightly
def test_a_file_without_torch_uses_no_tensors(server_names: set[str]) -> None:
    assert not [name for name in server_names if name.startswith("Tensor.")]


def test_library_names_are_those_that_people_import() -> None:
    record = json.loads(given_names.RECORD.read_text("utf-8"))
    names = {name for lab in record.values() for name in lab["names"]}
    ours = ("yaie.", "solutions.", "cuda.", "Tensor.", "tl.", "triton.")
    for name in sorted(names):
        if not name.startswith(ours):
            assert "._" not in name
            assert inspect.ismodule(_owner(name)) or inspect.isclass(_owner(name)), name


def _owner(name: str) -> object:
    """What holds the last part of a full name."""
    first, *rest = name.split(".")[:-1]
    found, path = importlib.import_module(first), first
    for part in rest:
        path = f"{path}.{part}"
        if not hasattr(found, part):
            importlib.import_module(path)
        found = getattr(found, part)
    return found


def test_a_name_without_a_meaning_fails_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = tmp_path / "names.json"
    record.write_text(json.dumps({"sampler": {"names": ["torch.where", "torch.unheard_of"]}}))
    monkeypatch.setattr(given, "NAMES", record)
    with pytest.raises(GivenError, match=r"nothing explains torch\.unheard_of; write"):
        render_given("sampler")


def test_a_reference_that_has_changed_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert given_names.main(["--check"]) == 0
    digest = given_names.digest
    monkeypatch.setattr(
        given_names, "digest", lambda lab: "new" if lab.key == "engine" else digest(lab)
    )
    assert given_names.main(["--check"]) == 1
    assert "solutions/engine has changed since: make given" in capsys.readouterr().out


def test_cuda_names_are_those_that_are_called_and_not_declared(tmp_path: Path) -> None:
    text = """__device__ float own(float x) {
    // BEGIN SOLUTION 14.1
    const dim3 block(across, 2);
    if (threadIdx.x == 0) x = helper<float>(x);  // other(x)
    return launch(kernel, block, max(x, 1.0f));
    // END SOLUTION
}
"""
    path = tmp_path / "own.cu"
    path.write_text(text)
    names = cuda_names(text, find_regions(text.splitlines(), path), tmp_path)
    assert set(names) == {"cuda.threadIdx", "cuda.helper", "cuda.launch", "cuda.max"}


def test_a_cuda_function_that_holds_a_region_is_not_given(tmp_path: Path) -> None:
    text = """// Adds.
template <typename T> __device__ void add(T *to, const Row<T> (&rows)[2]) {
    using Map = Spread<T, 2>;
    // BEGIN SOLUTION 16.1
    load(to, 1);
    // END SOLUTION
}
__global__ void all_kernel(float *to) {
    load(to, 0);
    // BEGIN SOLUTION 16.1
    DISPATCH(kind, T, { add<T>(to, rows); load(to, 0); });
    // END SOLUTION
}
"""
    path = tmp_path / "own.cu"
    path.write_text(text)
    names = cuda_names(text, find_regions(text.splitlines(), path), tmp_path)
    assert set(names) == {"cuda.load", "cuda.DISPATCH"}


def test_a_marker_explains_no_cuda_function(tmp_path: Path) -> None:
    (tmp_path / "own.cuh").write_text("""// BEGIN SOLUTION 16.2
    return softened(score);
// END SOLUTION
""")
    assert meaning_in(tmp_path, "softened") == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Rows start.. of a matrix. More.", "Rows start.. of a matrix."),
        ("how many\n    there are. More.", "How many there are."),
        (
            "scrambles bits (lowbias32 of C. Wellons). More.",
            "Scrambles bits (lowbias32 of C. Wellons).",
        ),
        ("a | b", "A \\| b"),
    ],
)
def test_a_meaning_is_one_sentence(text: str, said: str) -> None:
    assert one_line(text) == said
