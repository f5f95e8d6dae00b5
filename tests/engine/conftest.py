"""What tests of engines share."""

from collections.abc import Iterator

import pytest

from tests.server.fake_engine import FakeTokenizer
from yaie.models.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def fake_tokenizer() -> Iterator[None]:
    """Where a tokenizer is loaded from a folder, it is a fake one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tokenizer, "load", lambda folder, model_type="": FakeTokenizer())
        yield
