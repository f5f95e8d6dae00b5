"""Each exercise's answer is the one that another way of computing gives, and its expression has units.

`again_first` and `again_later` compute every answer once more, with plain numbers, by counting.
"""

import ast
import re
from fractions import Fraction

import pytest

from book.tools import exercises
from book.tools.exercises import EXERCISES, MODELS, Exercise, ExerciseError, load_exercises
from book.tools.figures import load_figure
from book.tools.quantities import QuantityError, evaluate
from tests.book.exercises import again_first, again_later
from tests.book.reading import SOURCE
from yaie.core.compat import tomllib

PAGES = sorted(path.stem for path in EXERCISES.glob("*.toml"))
ALL: dict[str, Exercise] = {one.key: one for page in PAGES for one in load_exercises(page)}
AGAIN = {**again_first.AGAIN, **again_later.AGAIN}
MODEL_TABLES = tomllib.loads(MODELS.read_text("utf-8"))["models"]


def entries(page: str) -> list[dict]:
    return tomllib.loads((EXERCISES / f"{page}.toml").read_text("utf-8"))["exercise"]


ENTRIES = {f"{page}-{entry['id']}": (page, entry) for page in PAGES for entry in entries(page)}


def test_every_exercise_is_computed_again():
    assert ALL.keys() == AGAIN.keys()


@pytest.mark.parametrize("key", ALL)
def test_an_answer_is_what_another_way_of_computing_gives(key):
    again = AGAIN[key]()
    assert float(ALL[key].answer) == pytest.approx(again, rel=1e-3), ALL[key].shown


@pytest.mark.parametrize("key", ALL)
def test_the_solution_shows_the_answer_that_is_accepted(key):
    one = ALL[key]
    shown = Fraction(re.sub(r"[^\d.]", "", one.shown.partition(" ")[0]))
    assert abs(shown - one.answer) <= one.within * abs(one.answer) / 2


CANCELS = {
    "paged-cache-swap-or-recompute": "context",  # the explanation says so
    "cuda-memory-ops-launches": "tensors",  # both sides have it
    "triton-flash-attention-masked-tiles": "keys",  # as long as they divide the queries
}
"""Numbers that a reader meets in the question and finds to cancel."""


@pytest.mark.parametrize("key", ALL)
def test_each_number_of_a_question_matters(key):
    """Double a number that is given: the answer changes, or it is not one that the question needs."""
    page, entry = ENTRIES[key]
    for name, text in entry.get("given", {}).items():
        for change in ("2", "3/8"):
            other = exercises.computed(
                page, entry | {"slip": [], "given": entry["given"] | {name: f"{change} * ({text})"}}
            )
            if other.answer != ALL[key].answer:
                break
        else:
            assert CANCELS.get(key) == name, f"{name} does not matter"


@pytest.mark.parametrize("key", ALL)
def test_a_factor_too_many_or_too_few_would_be_found(key):
    """An expression with one number, name or operator changed gives another answer, or has no sense."""
    page, entry = ENTRIES[key]
    changed = 0
    for text in mutants_of(entry["is"]):
        try:
            other = exercises.computed(page, entry | {"slip": [], "is": text})
        except ExerciseError:
            changed += 1
            continue
        assert float(other.answer) != pytest.approx(AGAIN[key](), rel=1e-3), text
        changed += 1
    assert changed


def mutants_of(expression: str) -> list[str]:
    """The expression with × for ÷ and the reverse, + for − and the reverse, at one place each."""
    swaps = {
        ast.Mult: ast.Div,
        ast.Div: ast.Mult,
        ast.FloorDiv: ast.Mult,
        ast.Add: ast.Sub,
        ast.Sub: ast.Add,
    }
    count = sum(isinstance(node, ast.BinOp) for node in ast.walk(ast.parse(expression)))
    made = []
    for place in range(count):
        tree = ast.parse(expression, mode="eval")
        node = [node for node in ast.walk(tree) if isinstance(node, ast.BinOp)][place]
        if type(node.op) in swaps:
            node.op = swaps[type(node.op)]()
            made.append(ast.unparse(tree))
    return made or [f"2 * ({expression})"]


def test_every_article_of_a_lab_and_every_page_of_numbers_has_exercises():
    from tests.book.test_chapters import AROUND, CHAPTERS

    without = {page for page in CHAPTERS if f"{{{{#exercises {page}}}}}" not in text_of(page)}
    # One has no numbers to compute with; the others are the tour and its map.
    assert without == {"cuda-on-a-cpu", "map", "whole-game"}
    assert set(AROUND) <= set(PAGES)
    assert {page for page in PAGES if f"{{{{#exercises {page}}}}}" in text_of(page)} == set(PAGES)


def text_of(page: str) -> str:
    return (SOURCE / f"{page}.md").read_text("utf-8")


DENSE = {key: model for key, model in MODEL_TABLES.items() if "ffn" in model}


@pytest.mark.parametrize("key", DENSE)
def test_weights_are_counted_from_the_shape(key):
    one = DENSE[key]
    inner = one["heads"] * one["head_dim"]
    outer = one["kv_heads"] * one["head_dim"]
    layer = one["hidden"] * (2 * inner + 2 * outer + 3 * one["ffn"])
    table = one["vocab"] * one["hidden"]
    assert one["matrices"] == one["layers"] * layer + table
    tied = key in ("tutor", "qwen3_06b")
    head_norms = 2 * one["head_dim"] if key.startswith("qwen3") else 0
    norms = one["layers"] * (2 * one["hidden"] + head_norms) + one["hidden"]
    assert one["parameters"] == one["matrices"] + (0 if tied else table) + norms


SAME = {
    "tutor": "tutor",
    "qwen3_06b": "qwen3-06b",
    "llama_8b": "llama-8b",
    "llama_70b": "llama-70b",
}


@pytest.mark.parametrize("key", SAME)
def test_a_shape_is_that_of_the_figures(key):
    drawn = load_figure("kv-growth")["data"]["models"][SAME[key]]
    for name, value in MODEL_TABLES[key].items():
        assert name in ("label", "source", "matrices") or drawn[name] == value, name


def test_mixtures_are_those_of_the_figure():
    drawn = load_figure("experts")["data"]["models"]
    names = {"layers": "expert_layers", "hidden": "hidden", "ffn": "expert_ffn", "count": "experts"}
    for here, there in (("deepseek_v3", "deepseek-v3"), ("qwen3_30b", "qwen3-30b")):
        for drawn_as, name in (names | {"chosen": "chosen"}).items():
            assert MODEL_TABLES[here][name] == drawn[there][drawn_as]
    latent = load_figure("kv-growth")["data"]["models"]["deepseek-v3"]
    for name in ("layers", "latent", "rotary", "parameters"):
        assert MODEL_TABLES["deepseek_v3"][name] == latent[name]


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("40*GB + 3*s", "different units"),
        ("floor(3*token)", "a unit is left over"),
        ("pool + 1", "there is no pool"),
        ("__import__('os')", "'os' is not arithmetic"),
        ("open(1)", "there is no open()"),
        ("'a' * 2", "not arithmetic"),
        ("1 / 0", "0"),
        ("(4*GB) ** 0.5", "a root"),
    ],
)
def test_an_expression_that_makes_no_sense_is_a_fault(expression, said):
    with pytest.raises(QuantityError, match=re.escape(said)):
        evaluate(expression, {})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"unit": "GB"}, "is not a number of GB"),
        ({"given": {"pool": "40*GB", "idle": "7"}}, "'idle'] is not used"),
        ({"ask": "How many {nothing}?"}, "names nothing"),
        ({"slip": [{"is": "pool / GB / 4.01", "why": "x"}]}, "nearly the answer"),
        ({"wrong": 1}, "has the keys"),
    ],
)
def test_an_exercise_that_makes_no_sense_is_a_fault(change, said):
    entry = {"id": "x", "ask": "In {pool}?", "given": {"pool": "40*GB"}, "why": "Because."}
    entry |= {"is": "pool / (4*GB)", "unit": "pieces"}
    assert exercises.computed("page", entry).shown == "10 pieces"
    with pytest.raises(ExerciseError, match=re.escape(said)):
        exercises.computed("page", entry | change)
