"""`Tokenizer`: round trips, chats, and templates that cannot be trusted."""

import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.tiny import CHAT_TEMPLATE, VOCAB, tiny_tokenizer
from yaie.core.errors import InvalidRequestError
from yaie.models import Tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> Tokenizer:
    return Tokenizer.load(folder)


@pytest.fixture
def with_template(folder: Path, tmp_path: Path) -> Callable[[str | None], Tokenizer]:
    """The same tokenizer with another chat template."""

    def make(template: str | None, model_type: str = "") -> Tokenizer:
        copy = shutil.copytree(folder, tmp_path / "copy", dirs_exist_ok=True)
        path = copy / "tokenizer_config.json"
        values = json.loads(path.read_text())
        values.pop("chat_template")
        path.write_text(json.dumps(values | ({"chat_template": template} if template else {})))
        return Tokenizer.load(copy, model_type)

    return make


def test_it_knows_its_special_tokens(tokenizer: Tokenizer) -> None:
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1)
    assert tokenizer.vocab_size == VOCAB


def test_any_text_comes_back(tokenizer: Tokenizer) -> None:
    @settings(max_examples=100, deadline=None)
    @given(st.text(st.characters(exclude_categories=["Cs"])))
    def check(text: str) -> None:
        ids = tokenizer.encode(text)
        assert all(type(token) is int for token in ids)
        if not any(special in text for special in ("<|bos|>", "<|end|>")):
            assert tokenizer.decode(ids) == text

    check()


def test_decode_leaves_special_tokens_out_and_spaces_alone(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode(" a , b !  c")
    assert tokenizer.decode([0, *ids, 1]) == " a , b !  c"


def test_half_a_character_decodes_to_the_replacement_character(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("語")
    assert len(ids) > 1
    assert "�" in tokenizer.decode(ids[:1])
    assert tokenizer.decode(tuple(ids)) == "語"


def test_an_id_beyond_the_vocabulary_decodes_to_nothing(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode([VOCAB + 5]) == ""


def test_decode_agrees_with_transformers(folder: Path, tokenizer: Tokenizer) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(folder)
    for start in range(0, VOCAB, 5):
        ids = [(start + 7 * step) % VOCAB for step in range(12)]
        for ours, skips in ((tokenizer.decode, True), (tokenizer.decode_all, False)):
            assert ours(ids) == theirs.decode(
                ids, skip_special_tokens=skips, clean_up_tokenization_spaces=False
            )


@contextmanager
def never_interrupted() -> Iterator[None]:
    """A thread gives the GIL up of itself or keeps it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(60)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def test_other_threads_go_on_while_many_tokens_are_decoded(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("hello ") * 20_000
    turns, is_over = 0, threading.Event()

    def count() -> None:
        nonlocal turns
        while not is_over.is_set():
            turns += 1
            time.sleep(0.0002)

    thread = threading.Thread(target=count)
    thread.start()
    try:
        with never_interrupted():
            for _ in range(20):  # the other thread needs a core
                before = turns
                tokenizer.decode_all(ids)
                if turns > before:
                    return
    finally:
        is_over.set()
        thread.join()
    pytest.fail("no turn of the other thread")


def test_a_chat_follows_the_models_template(tokenizer: Tokenizer) -> None:
    messages = [{"role": "user", "content": "hi"}]
    assert tokenizer.has_chat_template
    expected = tokenizer.encode("<|user|>\nhi<|end|>\n<|assistant|>\n")
    assert tokenizer.apply_chat_template(messages) == expected
    assert tokenizer.apply_chat_template(messages, add_generation_prompt=False) == expected[:-2]


def test_tools_reach_the_template(with_template: Callable[[str], Tokenizer]) -> None:
    tokenizer = with_template("{% for tool in tools %}{{ tool['function']['name'] }}{% endfor %}")
    tool = {"type": "function", "function": {"name": "look_up", "parameters": {}}}
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tools=[tool])
    assert tokenizer.decode(ids) == "look_up"


def test_a_conversation_that_the_template_refuses(
    with_template: Callable[[str], Tokenizer],
) -> None:
    tokenizer = with_template("{{ raise_exception('unknown role ' + messages[0]['role']) }}")
    with pytest.raises(InvalidRequestError, match="unknown role tool") as caught:
        tokenizer.apply_chat_template([{"role": "tool", "content": "hi"}])
    assert caught.value.param == "messages"


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ messages.clear() }}",
        "{% for %}",
        "{{ missing.attribute.of.it }}",
    ],
)
def test_a_template_runs_in_a_sandbox(
    template: str, with_template: Callable[[str], Tokenizer]
) -> None:
    messages = [{"role": "user", "content": "hi"}]
    with pytest.raises(InvalidRequestError, match="chat template refuses"):
        with_template(template).apply_chat_template(messages)
    assert len(messages) == 1


def test_a_model_without_template_gets_a_line_for_each_turn(
    with_template: Callable[[None], Tokenizer],
) -> None:
    tokenizer = with_template(None)
    assert not tokenizer.has_chat_template
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
    ids = tokenizer.apply_chat_template(messages)
    assert tokenizer.decode(ids) == "system: Be brief.\nuser: hi\nassistant:"


def test_gpt2_joins_turns_by_its_end_token(with_template: Callable[..., Tokenizer]) -> None:
    tokenizer = with_template(None, "gpt2")
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    a, b = tokenizer.encode("a"), tokenizer.encode("b")
    assert tokenizer.apply_chat_template(messages) == [*a, 1, *b, 1]


def test_the_tiny_template_is_the_one_on_disk(folder: Path) -> None:
    values = json.loads((folder / "tokenizer_config.json").read_text())
    assert values["chat_template"] == CHAT_TEMPLATE
