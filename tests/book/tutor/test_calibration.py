"""An installed YAIE has conversations of the generator, which it does not have."""

from book.tutor.calibration import conversations
from yaie.models.tutor import CALIBRATION


def test_the_conversations_of_quantize_are_the_generators() -> None:
    assert CALIBRATION.read_text("utf-8") == conversations(), "run python -m book.tutor.calibration"
