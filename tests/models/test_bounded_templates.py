"""Templates that would work for ever are ended; what others write stays as it was, to the letter."""

from typing import Any

import pytest

from tests.models.test_chat_templates import PARTS_ONLY, TALK, TEXTS
from tests.models.tiny import tiny_tokenizer
from tests.server.tool_models import STYLES
from yaie.core.errors import InvalidRequestError
from yaie.models import Tokenizer, template_work
from yaie.models.chat_templates import ChatTemplates
from yaie.models.template_parts import in_parts

LOOP = "{% for x in range(99999) %}"
WITHOUT_END = {
    "loops in loops": LOOP * 3 + "{% endfor %}" * 3,
    "a loop with a test": LOOP + "{% for y in range(99999) if false %}{% endfor %}{% endfor %}",
    "a macro that calls itself twice": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}"
    "{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "a text that doubles": "{% set ns = namespace(t='x' * 99) %}{% for i in range(60) %}"
    "{% set ns.t = ns.t ~ ns.t %}{% endfor %}",
    "one that doubles in a row": "{% set t = 'x' * 99999 %}" + "{% set t = t ~ t %}" * 40,
    "a sum that doubles": "{% set ns = namespace(t=[0]) %}{% for i in range(60) %}"
    "{% set ns.t = ns.t + ns.t %}{% endfor %}",
    "a text by a number": "{{ 'x' * 10000000000 }}",
    "a list by a number": "{{ 10000000000 * [1] }}",
    "a power": "{{ 9 ** (9 ** 9) }}",
    "products": "{% set ns = namespace(n=3) %}{% for i in range(60) %}{% set ns.n = ns.n * ns.n %}"
    "{% endfor %}",
    "a width": "{{ '%09999999999d' % 1 }}",
    "a width by a star": "{{ '%*d' % (9999999999, 1) }}",
    "a width of format": "{{ '{:09999999999d}'.format(1) }}",
    "a width in format": "{{ '{:{}}'.format(1, '9999999999') }}",
    "a width of the filter": "{{ '%09999999999d' | format(1) }}",
    "center": "{{ 'x' | center(10000000000) }}",
    "ljust": "{{ 'x'.ljust(10000000000) }}",
    "indent": "{{ 'x\ny' | indent(10000000000) }}",
    "many large texts": LOOP + "{{ 'x'.ljust(999999) | upper | length }}{% endfor %}",
    "filters": LOOP + "{{ range(99999) | map('string') | join | length }}{% endfor %}",
    "much that is written": "{% set t = 'x' * 999999 %}" + LOOP + "{{ t }}{% endfor %}",
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(tiny_tokenizer(tmp_path_factory.mktemp("t"), chat_template=False))


@pytest.fixture(autouse=True)
def _fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that are reached sooner; one is as good as another."""
    monkeypatch.setattr(template_work, "MOST_STEPS", 2000)
    monkeypatch.setattr(template_work, "MOST_CHARS", 1 << 21)


@pytest.mark.parametrize("kind", WITHOUT_END)
def test_a_template_that_works_without_end_is_ended(kind: str, tokenizer: Tokenizer) -> None:
    with pytest.raises(template_work.TemplateWorkError):
        ChatTemplates(tokenizer.of_transformers).rendered(WITHOUT_END[kind], TALK)


def test_the_client_is_told_and_the_next_prompt_has_all_its_steps(tokenizer: Tokenizer) -> None:
    theirs = tokenizer.of_transformers
    theirs.chat_template = (
        "{% for x in range(499) %}{% for y in range(messages | length - 1) %}"
        "{% endfor %}{% endfor %}{{ messages[0].content }}"
    )
    ours = Tokenizer(theirs)
    for _ in range(3):
        assert ours.decode(ours.apply_chat_template(TALK[:1])) == "Be brief."
    with pytest.raises(InvalidRequestError, match=r"refuses .*: it takes more than 2,000 steps"):
        ours.apply_chat_template(TALK[:3])


TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {}}}]
KEPT = {
    **TEXTS,
    **PARTS_ONLY,
    **{f"tools of {name}": style[0] for name, style in STYLES.items()},
    "arithmetic": "{{ 7 * 6 + 2 ** 5 - 9 % 4 }} {{ 'ab' * 3 + 'c' }} {{ [1] + [2] }}"
    "{{ 1 ~ 'x' ~ none }}",
    "formats": "{{ '%05d|%s' % (7, 'x') }} {{ '{:>4}{a}'.format(1, a=2) }} {{ '%s' | format(3) }}",
    "loops": "{% for x in [1, 2, 3] if x != 2 %}{{ loop.index }}{{ x }}{% if loop.last %}{% break %}"
    "{% endif %}{% else %}none{% endfor %}",
    "a recursive loop": "{% for x in [[1, [2]], [3]] recursive %}{{ loop.depth }}"
    "{% if x is iterable %}{{ loop(x) }}{% endif %}{% endfor %}",
    "macros": "{% macro f(a, b=2) %}{{ a }}{{ b }}{{ caller() if caller }}{% endmacro %}{{ f(1) }}"
    "{% call f(3) %}in{% endcall %}",
    "generation": "{% generation %}{{ messages[1].content }}{% endgeneration %}",
    "filters": "{{ messages | map(attribute='role') | join(', ') | upper }}{{ 'a<b' | e }}"
    "{{ {'b': 1} | tojson(indent=2) }}{{ ' x ' | trim }}"
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
}  # fmt: skip


@pytest.mark.parametrize("kind", [kind for kind in KEPT if kind != "never"])
def test_every_other_template_writes_what_it_wrote(kind: str, tokenizer: Tokenizer) -> None:
    from transformers.utils.chat_template_utils import _cached_compile_jinja_template

    talk: Any = in_parts(TALK) if kind in PARTS_ONLY else [TALK[1], TALK[2], TALK[1]]
    if "user alone" in kind:
        talk = in_parts(TALK[1:])
    ours = ChatTemplates(tokenizer.of_transformers).rendered(
        KEPT[kind], talk, tools=TOOLS, add_generation_prompt=True
    )
    tokens = tokenizer.of_transformers.special_tokens_map
    theirs = _cached_compile_jinja_template(KEPT[kind]).render(
        messages=talk, tools=TOOLS, documents=None, add_generation_prompt=True, **tokens
    )
    assert ours == theirs
