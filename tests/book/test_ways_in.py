"""What cannot be run here is at least well formed: dev container, workflow, notebook for a GPU."""

import ast
import json
import re

import jsonschema
import pytest
import yaml

from book.tools.hosted import main, render, sources
from book.tools.mdbook import ROOT
from yaie.curriculum.manifest import load_curriculum

CONTAINER = ROOT / ".devcontainer/devcontainer.json"
WORKFLOW = ROOT / ".github/workflows/book.yml"
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))

# What we use of a workflow's form; an unknown key is a slip of the pen.
WORKFLOW_FORM = {
    "type": "object",
    "required": ["name", "on", "permissions", "jobs"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string"},
        "on": {"type": "object", "required": ["push", "workflow_dispatch"]},
        "permissions": {
            "const": {"contents": "read", "pages": "write", "id-token": "write"},
        },
        "concurrency": {"type": "object"},
        "jobs": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {
                "type": "object",
                "required": ["runs-on", "steps"],
                "additionalProperties": False,
                "properties": {
                    "runs-on": {"type": "string"},
                    "timeout-minutes": {"type": "integer"},
                    "environment": {"type": "object", "required": ["name"]},
                    "steps": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "oneOf": [{"required": ["uses"]}, {"required": ["run"]}],
                            "additionalProperties": False,
                            "properties": {
                                "id": {"type": "string"},
                                "uses": {"type": "string", "pattern": r"^[\w-]+/[\w-]+@v\d+$"},
                                "run": {"type": "string"},
                                "with": {"type": "object"},
                                "env": {"type": "object"},
                            },
                        },
                    },
                },
            },
        },
    },
}
CONTAINER_FORM = {
    "type": "object",
    "required": ["name", "image", "postCreateCommand", "forwardPorts"],
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string"},
        "image": {"type": "string", "pattern": r"^[\w./-]+:[\w.-]+$"},
        "hostRequirements": {
            "type": "object",
            "additionalProperties": {"type": ["integer", "string"], "pattern": r"^\d+[tgmk]b$"},
        },
        "postCreateCommand": {"type": "string"},
        "postStartCommand": {"type": "string"},
        "forwardPorts": {"type": "array", "items": {"type": "integer"}},
        "portsAttributes": {
            "additionalProperties": {
                "additionalProperties": False,
                "properties": {
                    "label": {"type": "string"},
                    "onAutoForward": {
                        "enum": [
                            "notify",
                            "openBrowser",
                            "openBrowserOnce",
                            "openPreview",
                            "silent",
                            "ignore",
                        ]
                    },
                },
            }
        },
        "remoteEnv": {"type": "object", "additionalProperties": {"type": "string"}},
        "customizations": {"type": "object"},
    },
}


def workflow() -> dict:
    table = yaml.safe_load(WORKFLOW.read_text("utf-8"))
    return {
        "on" if key is True else key: value for key, value in table.items()
    }  # YAML 1.1 reads on as true


def made_targets(command: str) -> set[str]:
    return set(re.findall(r"\bmake (?:-\S+ )*([a-z-]+)", command))


def test_the_workflow_has_the_form_of_one_and_publishes_what_make_docs_builds():
    table = workflow()
    jsonschema.validate(table, WORKFLOW_FORM)
    steps = table["jobs"]["publish"]["steps"]
    used = [step.get("uses", step.get("run")) for step in steps]
    assert [re.sub(r"@v\d+$", "", each) for each in used][-4:] == [
        "actions/configure-pages",
        "make docs",
        "actions/upload-pages-artifact",
        "actions/deploy-pages",
    ]
    assert steps[-2]["with"] == {"path": "book/out"}
    ids = {step["id"] for step in steps if "id" in step}
    asked = set(re.findall(r"steps\.(\w+)\.", WORKFLOW.read_text("utf-8")))
    assert asked == ids


def test_the_container_sets_up_serves_the_book_and_forwards_both_ports():
    table = json.loads(CONTAINER.read_text("utf-8"))
    jsonschema.validate(table, CONTAINER_FORM)
    commands = f"{table['postCreateCommand']} {table['postStartCommand']}"
    assert made_targets(commands) == {"setup", "docs-serve"} <= TARGETS
    assert f"PORT={table['forwardPorts'][0]}" in table["postStartCommand"]
    assert {str(port) for port in table["forwardPorts"]} == table["portsAttributes"].keys()


@pytest.mark.parametrize("source", sources(), ids=lambda path: path.stem)
def test_a_notebook_is_made_from_its_source_and_its_cells_are_python(source):
    text = source.with_suffix(".ipynb").read_text("utf-8")
    assert text == render(source), "make notebooks"
    notebook = json.loads(text)
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    prose = [
        "".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "markdown"
    ]
    for cell in code:
        ast.parse(cell)
    assert made_targets("\n".join(code)) <= TARGETS
    assert "Not run by its authors" in prose[0]
    assert notebook["metadata"]["accelerator"] == "GPU"


def test_the_notebook_grades_every_lab_of_kernels():
    text = (ROOT / "notebooks/kernels_on_a_gpu.py").read_text("utf-8")
    [listed] = [
        ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "LABS"
    ]
    assert listed == [lab.key for lab in load_curriculum().labs if lab.is_kernel]


def test_the_notebook_is_valid_for_jupyter():
    import nbformat

    for source in sources():
        nbformat.validate(nbformat.read(source.with_suffix(".ipynb"), as_version=4))


def test_the_check_says_what_is_out_of_step(tmp_path, monkeypatch, capsys):
    from book.tools import hosted

    (tmp_path / "one.py").write_text("# %%\nprint(1)\n")
    monkeypatch.setattr(hosted, "FOLDER", tmp_path)
    assert main(["--check"]) == 1
    assert "one.ipynb is not what one.py says" in capsys.readouterr().out
    assert main([]) == main(["--check"]) == 0
