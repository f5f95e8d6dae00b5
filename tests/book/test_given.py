"""What a chapter says is given: every call and field that its lab's reference uses."""

import json
from pathlib import Path

import pytest

from book.tools import given, given_names
from book.tools.given import GivenError, one_line, render_given
from book.tools.given_cuda import cuda_names
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
        path.read_text("utf-8") for path in (ROOT / "book/src").glob("*.md")
    )


def test_what_is_used_is_named_and_what_is_written_is_not() -> None:
    names = set(given_names.names_of(load_curriculum()["radix_tree"]))
    assert "solutions.radix_tree.node.Node.children" in names
    assert "solutions.radix_tree.radix_tree.RadixTree._path_up" in names  # given, in the same file
    assert not any("match_prefix" in name or "_tick" in name for name in names)
    assert not any(name.startswith("builtins") for name in names)


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


@pytest.mark.parametrize(
    ("text", "said"),
    [
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
