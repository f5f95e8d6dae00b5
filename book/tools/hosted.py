"""The notebooks for hosted GPUs: from `notebooks/<name>.py` to `notebooks/<name>.ipynb`.

python -m book.tools.hosted           write them
python -m book.tools.hosted --check   write nothing; exit 1 and name those that are out of step
"""

import json
import sys
from pathlib import Path

from book.tools.mdbook import ROOT
from grader.notebooks import make_notebook
from yaie.system.files import write_whole
from yaie.system.streams import sound_streams

FOLDER = ROOT / "notebooks"
HOSTED = {"accelerator": "GPU", "colab": {"gpuType": "T4", "provenance": []}}
"""What asks Colab for a machine with a GPU; others pass over it."""


def render(source: Path) -> str:
    """The notebook of a source in percent format, as text."""
    notebook = json.loads(make_notebook(source.read_text("utf-8"), source))
    notebook["metadata"] |= HOSTED
    return json.dumps(notebook, ensure_ascii=False, indent=1, sort_keys=True) + "\n"


def sources() -> list[Path]:
    """The sources of all of them."""
    return sorted(FOLDER.glob("*.py"))


def main(arguments: list[str]) -> int:
    """Exit status: 0 written or in step, 1 out of step."""
    faults = []
    for source in sources():
        target, text = source.with_suffix(".ipynb"), render(source)
        if "--check" not in arguments:
            write_whole(target, text)
        elif not target.is_file() or target.read_text("utf-8") != text:
            faults.append(f"{target.name} is not what {source.name} says; make notebooks")
    print(*faults or ["The notebooks for hosted GPUs are in step."], sep="\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(sound_streams(main)(sys.argv[1:]))
