"""What a server says when it is ready: which settings do nothing for this model."""

from types import SimpleNamespace

import pytest

from tests.server.conftest import serving
from tests.server.fake_engine import FakeEngine
from tests.server.tool_models import STYLES
from yaie.server.cautions import cautions
from yaie.server.settings import ServerSettings

HERMES = STYLES["hermes"][0]
PLAIN = "{% for message in messages %}{{ message.content }}{% endfor %}"


def said(
    parser: str, template: str, note: str | None = None, reasoning: str = "auto", token: str = ""
) -> str:
    """token: what the tokenizer has as one token."""
    tokenizer = SimpleNamespace(
        chat_template=template,
        special_token_id=lambda text: None,
        template_note=note,
        encode=lambda text, add_special_tokens: [0] if text == token else [*text.encode()],
    )
    settings = ServerSettings(tool_parser=parser, reasoning_parser=reasoning)  # type: ignore[arg-type]
    return " ".join(cautions(tokenizer, settings))


@pytest.mark.parametrize(
    ("parser", "template"),
    [
        ("auto", PLAIN),
        ("auto", HERMES),
        ("none", HERMES),
        ("hermes", HERMES),
        # DeepSeek's tools are put into the system message, whatever the template says.
        ("deepseek_v31", PLAIN),
    ],
)
def test_settings_that_have_their_effect_are_passed_over(parser: str, template: str) -> None:
    assert said(parser, template) == ""


@pytest.mark.parametrize(
    ("template", "why"),
    [("", "has no chat template"), (PLAIN, "has a chat template that mentions no tools")],
)
@pytest.mark.parametrize("parser", ["hermes", "llama3", "mistral", "qwen3_coder"])
def test_a_parser_for_a_model_that_cannot_be_told_about_tools(
    parser: str, template: str, why: str
) -> None:
    told = said(parser, template)
    assert told.startswith(f"--tool-parser {parser} has no effect: the model {why}")
    assert "requests with tools are refused" in told


def test_a_parser_for_another_form_than_the_templates() -> None:
    told = said("llama3", HERMES)
    assert "writes calls as hermes does" in told
    assert "--tool-parser hermes" in told


@pytest.mark.parametrize(
    ("reasoning", "template", "token"),
    [
        ("auto", PLAIN, ""),
        ("none", PLAIN + "</think>", ""),
        ("think", PLAIN + "</think>", ""),
        ("think", PLAIN, "</think>"),
        ("mistral", PLAIN + "[/THINK]", ""),
    ],
)
def test_a_reasoning_parser_that_the_model_knows(reasoning: str, template: str, token: str) -> None:
    assert said("auto", template, reasoning=reasoning, token=token) == ""


def test_a_reasoning_parser_of_which_the_model_knows_nothing() -> None:
    told = said("auto", PLAIN, reasoning="think")
    assert told.startswith("--reasoning-parser think: neither the model's chat template nor")
    assert "</think>" in told


def test_a_reasoning_parser_for_other_tags_than_the_models() -> None:
    told = said("auto", PLAIN + "</think>", reasoning="mistral")
    assert "writes its reasoning as think does" in told
    assert "--reasoning-parser think" in told


def test_templates_without_a_default_are_told() -> None:
    assert "chats are refused" in said("auto", PLAIN, "the model has chat templates named 'a', 'b'")


def test_the_server_logs_them_once_it_is_ready(caplog: pytest.LogCaptureFixture) -> None:
    with serving(FakeEngine, tool_parser="hermes"):
        pass
    told = [record for record in caplog.records if record.name == "yaie.server.run"]
    assert [record.levelname for record in told] == ["WARNING"]
    assert "--tool-parser hermes has no effect" in told[0].getMessage()
