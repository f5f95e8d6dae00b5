"""The tutor: the small chat model that ships with YAIE, and what is published with it.

    weights/           the model, in Hugging Face layout, with its card
    draft/, mtp/       what guesses at its tokens: a small model, and a head on its states
    hybrid/            its sibling, most of whose layers keep a state: smaller, of the same tokenizer,
                       with a card and an evaluation of its own
    evaluation.json    what it answered when it was judged, for the card
    calibration.jsonl  conversations of the kind that it was trained on, for `yaie quantize`

`book/tutor` makes all of it. Importing this package imports nothing else.
"""

from pathlib import Path

TUTOR_DIR = Path(__file__).parent
TUTOR_PATH = TUTOR_DIR / "weights"
HYBRID_PATH = TUTOR_DIR / "hybrid"
CALIBRATION = TUTOR_DIR / "calibration.jsonl"

__all__ = ["CALIBRATION", "HYBRID_PATH", "TUTOR_DIR", "TUTOR_PATH"]
