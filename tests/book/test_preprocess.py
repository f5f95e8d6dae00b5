"""What the preprocessor makes of a chapter, and how it refuses what it cannot."""

import io
import json
import sys

import pytest

from book.tools import cards, evidence, figures, preprocess, quizzes
from book.tools.blocks import SOURCE
from book.tools.fences import trim_listings
from book.tools.mdbook import ROOT
from book.tools.minutes import reading_minutes
from yaie.curriculum.manifest import load_curriculum
from yaie.curriculum.progress import LabRecord, Progress, part_digest

QUESTION = """
[[question]]
id = "{id}"
ask = "Why $n$?"
choice = [{{ text = "a", why = "no", right = {first} }}, {{ text = "b", why = "yes", right = true }}]
"""


def expanded(content: str, path: str = "one.md") -> str:
    chapter = {"path": path, "content": content, "sub_items": []}
    assert list(preprocess.expand_chapter(chapter)) == []
    return str(chapter["content"])


def faults_of(content: str) -> list[str]:
    return list(preprocess.expand_chapter({"path": "one.md", "content": content, "sub_items": []}))


@pytest.fixture
def quiz_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(quizzes, "QUIZZES", tmp_path)
    return tmp_path


@pytest.fixture
def records(tmp_path, monkeypatch):
    monkeypatch.setattr(evidence, "EVIDENCE", tmp_path)
    evidence.load.cache_clear()
    yield tmp_path
    evidence.load.cache_clear()


def run(book: object, monkeypatch, version: str = "0.5.4") -> int:
    request = json.dumps([{"mdbook_version": version}, book])
    monkeypatch.setattr(sys, "stdin", io.StringIO(request))
    return preprocess.main([])


def test_chapters_below_chapters_are_reached(monkeypatch, capsys):
    inner = {"Chapter": {"name": "B", "path": "b.md", "content": "$x$", "sub_items": []}}
    outer = {"Chapter": {"name": "A", "path": "a.md", "content": "$y$", "sub_items": [inner]}}
    draft = {"Chapter": {"path": None, "content": "$", "sub_items": []}}
    book = {"items": ["Separator", {"PartTitle": "I"}, outer, draft]}
    assert run(book, monkeypatch) == 0
    chapter = json.loads(capsys.readouterr().out)["items"][2]["Chapter"]
    assert chapter["content"].startswith("<math>")
    assert chapter["sub_items"][0]["Chapter"]["content"].startswith("<math>")


def test_every_fault_of_every_chapter_is_named(monkeypatch, capsys):
    chapters = [
        {"Chapter": {"name": name, "path": f"{name}.md", "content": content, "sub_items": []}}
        for name, content in (("a", r"$\nonsense$"), ("b", "{{#value none:x}} {{#figure none}}"))
    ]
    assert run({"items": chapters}, monkeypatch) == 1
    said = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in said] == ["ERROR a.md", "ERROR b.md", "ERROR b.md"]


def test_another_series_of_mdbook_is_refused(monkeypatch, capsys):
    assert run({"items": []}, monkeypatch, version="0.6.0") == 1
    assert "0.5" in capsys.readouterr().err


def test_only_html_is_supported():
    assert preprocess.main(["supports", "html"]) == 0
    assert preprocess.main(["supports", "markdown"]) == 1


@pytest.mark.parametrize(
    "text",
    [
        "`$x$`",
        "```text\n$x$ {{#minutes}}\n```",
        '<script type="application/json">{"a": "$x$"}</script>',
        "one $ alone",
        "$5 and $6",
    ],
)
def test_dollars_that_are_no_formula_stay(text):
    assert expanded(text) == text


def test_an_escaped_dollar_is_a_dollar():
    assert expanded(r"\$5") == "$5"


def test_a_formula_shows_nothing_that_markdown_would_read():
    made = expanded("$a_1 * b' | c$")
    assert made.startswith("<math>")
    assert not set("*_|'") & set(made.replace("</", ""))


def test_a_displayed_formula_may_stand_in_a_quotation():
    made = expanded("> $$\n> a + b\n> $$\n")
    assert 'display="block"' in made
    assert "&gt;" not in made


def test_a_prediction_is_marked_as_one():
    made = expanded("> [!PREDICT]\n> How many $n$?\n\nText.\n")
    assert '<p class="blockquote-tag-title">Predict</p>' in made
    assert "\n\nHow many <math>" in made
    assert made.endswith("</blockquote>\n\nText.\n")


def test_a_listing_is_dedented_and_loses_blank_lines_at_its_ends():
    cut_out = "Text.\n\n```python\n    def f():\n        return 1\n\n\n```\n\n    indented text\n"
    assert trim_listings(cut_out) == (
        "Text.\n\n```python\ndef f():\n    return 1\n```\n\n    indented text\n"
    )


def test_what_is_meant_for_tools_does_not_reach_the_page():
    assert trim_listings("```console,solved=sampler\n$ x\n```") == "```console\n$ x\n```"
    assert trim_listings("```pseudo\nx\n```") == "```text\nx\n```"


def test_a_fence_in_a_list_keeps_its_place():
    text = "- point\n\n  ```text\n  kept\n  ```\n"
    assert trim_listings(text) == text


def test_a_recorded_number_is_written_as_asked(records):
    (records / "run.json").write_text('{"rows": [{"share": 0.9921}], "name": "A", "count": 1234}')
    assert evidence.value("run:rows.0.share", ".1%") == "99.2%"
    assert evidence.value("run:count", ",") == "1,234"
    assert evidence.value("run:name") == "A"


def test_a_key_with_a_dot_is_asked_for_between_backquotes(records):
    (records / "run.json").write_text('{"runs": {"torch.compile": {"ms": 0.25}}}')
    assert expanded("{{#value run:runs.`torch.compile`.ms .2f}}") == "0.25"


def test_of_repeated_measurements_the_median_and_the_ends_can_be_asked(records):
    (records / "run.json").write_text('{"power of two": [3.0, 1.0, 2.0]}')
    assert expanded("{{#value run:power of two.median .1f}}") == "2.0"
    assert expanded("{{#value run:power of two.low .1f}}") == "1.0"
    assert expanded("{{#value run:power of two.high .1f}}") == "3.0"
    assert expanded("{{#value run:power of two.high /1e1 .1f}}") == "0.3"


def test_a_median_is_written_with_the_ends_of_its_runs(records):
    (records / "run.json").write_text(
        '{"power of two": [3.0, 1.0, 2.0], "run": {"median": 3900, "low": 3100, "high": 4000}}'
    )
    assert expanded("{{#spread run:power of two .1f}}") == "2.0 (1.0 to 3.0)"
    assert expanded("{{#spread run:run ,.0f}}") == "3,900 (3,100 to 4,000)"


@pytest.mark.parametrize(
    ("address", "form", "said"),
    [
        ("gone:x", "", "no book/evidence/gone.json"),
        ("run:x", "", "no 'x' in ['share']"),
        ("run:share", "", "say how to write it"),
        ("run:share", "d", "format code"),
    ],
)
def test_a_number_that_is_not_there_is_a_fault(records, address, form, said):
    (records / "run.json").write_text('{"share": 0.5}')
    with pytest.raises(evidence.EvidenceError, match=said.replace("[", r"\[")):
        evidence.value(address, form)


def test_a_quiz_is_rendered_with_its_formulas(quiz_folder):
    (quiz_folder / "q.toml").write_text(
        "".join(QUESTION.format(id=name, first="false") for name in "xyz")
    )
    made = quizzes.render_quiz("q")
    assert made.count("<yaie-question") == 3
    assert "<math>" in made
    assert "\n" not in made


@pytest.mark.parametrize(
    ("text", "answer"), [("It doubles.", "It doubles. So"), ("twice", "twice. So")]
)
def test_an_answer_has_one_full_stop(text, answer):
    choice = [{"text": text, "why": "So it is.", "right": True}, {"text": "no", "why": "Not so."}]
    question = {"id": "x", "ask": "How much?", "choice": choice}
    assert f"<p>{answer}" in quizzes.render_question("q", question)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (QUESTION.format(id="x", first="false"), "1 questions, not 3 to 5"),
        (QUESTION.format(id="x", first="false") * 3, "same id"),
        ("".join(QUESTION.format(id=name, first="true") for name in "xyz"), "one of them right"),
    ],
)
def test_a_quiz_that_makes_no_sense_is_a_fault(quiz_folder, text, said):
    (quiz_folder / "q.toml").write_text(text)
    with pytest.raises(quizzes.QuizError, match=said):
        quizzes.load_quiz("q")


def test_a_figure_without_a_file_is_a_fault():
    with pytest.raises(figures.FigureError, match=r"no book/figures/none\.toml"):
        figures.render_figure("none")


def test_what_a_figure_holds_cannot_end_its_script(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "FIGURES", tmp_path)
    (tmp_path / "f.toml").write_text('element = "base"\ntitle = "t"\ncaption = "c"\n')
    made = figures.render_figure("f", data={"steps": [{"say": "</script><b>"}]})
    assert made.count("</script>") == 1
    assert "<li>&lt;/script&gt;&lt;b&gt;</li>" in made


def test_a_card_has_all_tasks_with_the_points_of_the_manifest():
    lab = load_curriculum()["sampler"]
    made = cards.render_card("sampler")
    for task in lab.tasks:
        assert f"<td>{task.id}</td>" in made
        assert f"<td>{task.points}</td>" in made
    assert made.count("<summary>") == 1 + len(lab.tasks) * (1 + len(cards.RUNGS))
    assert "You have" not in made


def test_a_served_card_shows_points_that_hold_on_the_present_source(tmp_path, monkeypatch):
    lab = load_curriculum()["sampler"]
    folder = tmp_path / "labs/sampler"
    folder.mkdir(parents=True)
    (folder / "sampler.py").write_text("x = 1\n")
    (tmp_path / "grader/hints").mkdir(parents=True)
    hints = cards.ROOT / "grader/hints/sampler.toml"
    (tmp_path / "grader/hints/sampler.toml").write_text(hints.read_text("utf-8"))
    progress = Progress.load(tmp_path)
    progress.records["sampler"] = LabRecord(part_digest(folder), ("1.1",), 15, "2026-01-01T00:00")
    progress.save()
    monkeypatch.setattr(cards, "ROOT", tmp_path)
    monkeypatch.setenv(cards.SERVED, "yes")
    assert f"You have 15 of {lab.points} points." in cards.render_card("sampler")
    assert cards.render_card("sampler").count("✓ passed") == 1
    (folder / "sampler.py").write_text("x = 2\n")
    changed = cards.render_card("sampler")
    assert "15 of 100 points when last graded; your code has changed since." in changed
    assert 'value="0"' in changed


def test_the_reading_time_counts_words():
    assert reading_minutes("word " * 400) == 2
    assert reading_minutes("word " * 400 + "<svg>" + "x " * 4000 + "</svg>") == 2
    assert reading_minutes("word") == 1


def test_definitions_under_the_pointer_take_no_time_to_read():
    terms = "A token budget, a block table, a KV cache, a scheduler and a radix tree."
    made = expanded("# One\n\n{{#minutes}}\n\n" + "word " * 280 + terms)
    assert "](glossary.md#token-budget" in made
    assert "1 minute to read" in made


def test_what_is_checked_is_counted():
    made = expanded("{{#count wrong}}, {{#count links}}, {{#count commands}}")
    wrong, links, commands = (int(number.replace(",", "")) for number in made.split(", "))
    assert wrong == len([*(ROOT / "grader/known_wrong").rglob("*.toml")])
    assert links > 300
    shown = sum(path.read_text("utf-8").count("\n$ ") for path in SOURCE.rglob("*.md"))
    assert 100 < commands < shown


def test_an_article_and_its_sheet_name_each_other_below_their_titles():
    article = expanded(
        "# The radix tree\n\n{{#minutes}}\n\n{{#sheet radix_tree}}\n", "radix-tree.md"
    )
    says = 'The lab: <a href="labs/radix_tree.html">lab 4</a>, about 2½ hours</p>'
    assert f"1 minute to read. {says}" in article
    assert '<a class="button" href="labs/radix_tree.html">Lab 4: Radix tree</a>' in article
    assert "5 tasks, about 2½ hours." in article
    sheet = expanded(
        "# Lab 4: Radix tree\n\n{{#minutes}}\n\n**4.2 Insert.** Text.\n", "labs/radix_tree.md"
    )
    says = 'The article: <a href="../radix-tree.html">The radix tree</a></p>'
    assert f"about 2½ hours to do. {says}" in sheet
    assert '<span id="task-4-2"></span>**4.2 Insert.** Text.' in sheet
    other = expanded("# Glossary\n\n{{#minutes}}\n\n**4.2 Insert.**\n", "glossary.md")
    assert "to read</p>" in other
    assert "task-4-2" not in other


def test_a_sheet_of_no_lab_is_a_fault():
    [fault] = faults_of("{{#sheet nonsense}}")
    assert "nonsense" in fault


def test_every_script_of_a_figure_is_loaded_by_the_pages():
    listed = (figures.ROOT / "book.toml").read_text("utf-8")
    scripts = sorted(path.name for path in figures.ELEMENTS.glob("*.js"))
    assert [name for name in scripts if f'"book/theme/figures/{name}"' not in listed] == []


def test_an_option_in_a_recorded_text_keeps_its_dashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preprocess, "asked_value", lambda asked: "serve --mine all")
    assert expanded("It is {{#value x:y}}.") == r"It is serve \-\-mine all."
    assert expanded("It is `{{#value x:y}}`.") == "It is `serve --mine all`."
