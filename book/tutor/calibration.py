"""Writes the conversations that `yaie quantize` calibrates with: python -m book.tutor.calibration

An installed YAIE has no generator of conversations, so it has some that were generated: JSON lines with
"messages", as `yaie quantize --calibration` takes them.
"""

import json

from book.tutor.dialogues import dialogues
from yaie.models.tutor import CALIBRATION
from yaie.system.files import write_whole

SEED = 19
COUNT = 256
"""About 131 windows of 512 tokens by the tutor's tokenizer, four times what is used by default."""


def conversations() -> str:
    """The text of the file."""
    talks = ({"messages": talk} for talk in dialogues(SEED, COUNT))
    return "".join(json.dumps(talk, ensure_ascii=False) + "\n" for talk in talks)


def main() -> None:
    write_whole(CALIBRATION, conversations())


if __name__ == "__main__":
    main()
