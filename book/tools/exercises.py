"""Exercises with a number for an answer: book/exercises/<page>.toml, asked at the end of an article.

No answer is typed: an expression computes it when the book is built, from the numbers of the question,
of `book/models.toml` (models as published) and of `book/evidence/ceilings.json` (machines as measured).
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from book.tools.evidence import load
from book.tools.markup import escape, inline
from book.tools.mdbook import ROOT
from book.tools.quantities import UNITS, Quantity, QuantityError, evaluate, names_in, unit_of
from book.tools.quantities_shown import WORDS, Known, amount, formula, in_unit, measure
from yaie.core.compat import tomllib

EXERCISES = ROOT / "book/exercises"
MODELS = ROOT / "book/models.toml"
LEAST, MOST = 3, 5
WITHIN = Fraction(2, 100)
"""How far an answer may be off, as a share, unless an exercise says otherwise."""
REQUIRED = {"id", "ask", "is", "unit", "why"}
OPTIONAL = {"given", "step", "slip", "within", "say"}
SPELT = {
    "byte": "B KB MB GB TB KiB MiB GiB",
    "second": "ns us ms s minute hour",
    "FLOP": "FLOP GFLOP TFLOP",
}
"""Other units in which a reader may answer, by base unit."""


NAME = re.compile(r"\{([a-z_][a-z_0-9]*(?:\.[a-z_]+)?)\}")


class ExerciseError(ValueError):
    """A file of exercises is missing or does not make sense. The message says which and what."""


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a solution. say: what it computes, in words."""

    say: str
    formula: str
    result: str


@dataclass(frozen=True, slots=True)
class Exercise:
    """One exercise, computed. answer: in `unit`. slips: wrong answers that readers give, and why."""

    key: str
    ask: str
    unit: str
    answer: Fraction
    within: Fraction
    shown: str
    steps: tuple[Step, ...]
    why: str
    slips: tuple[tuple[Fraction, str], ...]
    sources: tuple[str, ...]
    used: frozenset[str]


@cache
def load_exercises(page: str) -> tuple[Exercise, ...]:
    """The exercises of a page, computed. Raises ExerciseError."""
    path = EXERCISES / f"{page}.toml"
    if not path.is_file():
        raise ExerciseError(f"there is no book/exercises/{page}.toml")
    entries = tomllib.loads(path.read_text("utf-8")).get("exercise", [])
    if not LEAST <= len(entries) <= MOST:
        raise ExerciseError(f"exercises {page}: {len(entries)}, not {LEAST} to {MOST}")
    if len({entry.get("id") for entry in entries}) < len(entries):
        raise ExerciseError(f"exercises {page}: two have the same id")
    return tuple(computed(page, entry) for entry in entries)


def computed(page: str, entry: dict[str, Any]) -> Exercise:
    """One exercise of a file. Raises ExerciseError."""
    where = f"exercises {page}, {entry.get('id')}"
    if not REQUIRED <= entry.keys() <= REQUIRED | OPTIONAL:
        raise ExerciseError(f"{where} has the keys {sorted(entry)}")
    try:
        return _computed(page, entry)
    except QuantityError as error:
        raise ExerciseError(f"{where}: {error}") from None


def _computed(page: str, entry: dict[str, Any]) -> Exercise:
    names = dict(known_numbers())
    own: set[str] = set()
    used: set[str] = set()
    for name, text in entry.get("given", {}).items():
        names[name] = Known(evaluate(text, {}), unit=unit_of(text))
        own.add(name)
    steps = []
    for step in entry.get("step", []):
        value = evaluate(step["is"], _values(names))
        names[step["name"]] = Known(value, unit=step.get("unit", ""))
        own.add(step["name"])
        used |= names_in(step["is"])
        steps.append(_step(step["say"], step["is"], names, step.get("unit", "")))
    used |= names_in(entry["is"])
    if unused := own - used - set(_asked(entry["ask"])):
        raise QuantityError(f"{sorted(unused)} is not used")
    unit = entry["unit"]
    result = evaluate(entry["is"], _values(names))
    steps.append(_step(entry.get("say", "So"), entry["is"], names, unit))
    answer = in_unit(result, unit)
    within = Fraction(str(entry.get("within", float(WITHIN))))
    slips = [
        (in_unit(evaluate(slip["is"], _values(names)), unit), inline(slip["why"]))
        for slip in entry.get("slip", [])
    ]
    if any(abs(wrong - answer) <= 2 * within * abs(answer) for wrong, _ in slips):
        raise QuantityError("a slip is nearly the answer")
    return Exercise(
        key=f"{page}-{entry['id']}",
        ask=inline(_filled(entry["ask"], names)),
        unit=unit,
        answer=answer,
        within=within,
        shown=amount(result, unit),
        steps=tuple(steps),
        why=inline(_filled(entry["why"], names)),
        slips=tuple(slips),
        sources=_sources(used | set(_asked(entry["ask"]))),
        used=frozenset(used),
    )


def _values(names: dict[str, Known]) -> dict[str, Quantity]:
    return {name: known.value for name, known in names.items()}


def _step(say: str, expression: str, names: dict[str, Known], unit: str) -> Step:
    result = amount(evaluate(expression, _values(names)), unit)
    shown = formula(expression, names)
    return Step(inline(say), shown if shown != result else "", result)


def _asked(text: str) -> list[str]:
    """The names in braces of a text: "{pool}". Braces of formulas hold no such name."""
    return [name for name in NAME.findall(text) if not name[0].isdigit()]


def _filled(text: str, names: dict[str, Known]) -> str:
    """The text with the numbers that it names."""
    for name in _asked(text):
        if name not in names:
            raise QuantityError(f"the text names {name}, which is not there")
        text = text.replace(f"{{{name}}}", str(names[name]))
    return text


@cache
def known_numbers() -> dict[str, Known]:
    """All numbers that exercises may name: "qwen3_8b.layers", "h200.bandwidth"."""
    found: dict[str, Known] = {}
    table = _models()
    for key, model in table["models"].items():
        for name, value in model.items():
            if name not in ("label", "source"):
                found[f"{key}.{name}"] = Known(Quantity(Fraction(str(value))), table["words"][name])
    for key, machine in load("ceilings")["machines"].items():
        low, high = machine["flops_per_second"]
        rates = {"bandwidth": ("byte", machine["bytes_per_second"]), "flops_low": ("FLOP", low)}
        rates["flops_high"] = ("FLOP", high)
        for name, (base, rate) in rates.items():
            found[f"{key}.{name}"] = Known(Quantity(Fraction(rate), {base: 1, "second": -1}))
    return found


@cache
def _models() -> dict[str, Any]:
    return tomllib.loads(MODELS.read_text("utf-8"))


def _sources(names: set[str]) -> tuple[str, ...]:
    """Where the numbers of models and machines come from, as HTML."""
    keys = {name.partition(".")[0] for name in names if "." in name}
    models = _models()["models"]
    found = [
        f"{escape(models[key]['label'])}: {inline(models[key]['source'])}"
        for key in sorted(keys & models.keys())
    ]
    if keys - models.keys():
        found.append('machines: as measured, <a href="roofline.html">the roofline</a>')
    return tuple(found)


def render_exercises(page: str) -> str:
    """The section of a page, in one line, usable without scripts too. Raises ExerciseError."""
    body = "".join(
        render_exercise(one, place) for place, one in enumerate(load_exercises(page), start=1)
    )
    return (
        '<section class="exercises"><h2 id="exercises">Exercises</h2>'
        "<p>Take paper or a calculator; rounded numbers will do. Type a number, and a unit if you like: "
        f"<code>43 GB</code>, <code>1.2k</code>.</p>{body}</section>"
    )


def render_missed(chapters: dict[str, tuple[str, str]]) -> str:
    """All exercises for the review page, which shows those that were missed. As `render_review`."""
    return "".join(
        f'<section data-exercises="{name}" hidden><h2><a href="{page}#exercises">{inline(title)}: '
        f"exercises</a></h2>{''.join(map(render_exercise, load_exercises(name)))}</section>"
        for name, (page, title) in chapters.items()
    )


def render_exercise(exercise: Exercise, place: int | None = None) -> str:
    """One exercise: the question, its worked solution folded; a script puts an input between them."""
    data = {
        "key": exercise.key,
        "answer": repr(float(exercise.answer)),
        "within": repr(float(exercise.within)),
        "unit": words_of_unit(exercise.unit),
        "units": " ".join(
            f"{name}={factor!r}" for name, factor in spellings(exercise.unit).items()
        ),
    }
    marks = "".join(f' data-{name}="{escape(value)}"' for name, value in data.items())
    slips = "".join(
        f'<p class="why" data-slip="{float(value)!r}" hidden>{why}</p>'
        for value, why in exercise.slips
    )
    lines = "".join(f"<li>{_line(step)}</li>" for step in exercise.steps)
    sources = f'<p class="source">{"; ".join(exercise.sources)}</p>' if exercise.sources else ""
    before = f"{place}. " if place else ""
    return (
        f"<yaie-exercise{marks}><fieldset><legend>{before}{exercise.ask}</legend>{slips}"
        f"<details><summary>Solution</summary>"
        f"<ol>{lines}</ol><p>{exercise.why}</p>{sources}</details></fieldset></yaie-exercise>"
    )


def _line(step: Step) -> str:
    result = f"<strong>{step.result}</strong>"
    return f"{step.say}: {step.formula} = {result}" if step.formula else f"{step.say}: {result}"


def words_of_unit(unit: str) -> str:
    """The unit as an input's label says it: "tokens/s"."""
    return amount(Quantity(Fraction(2) * measure(unit).value, measure(unit).units), unit).partition(
        " "
    )[2] or {"percent": "%"}.get(unit, unit)


def spellings(unit: str) -> dict[str, float]:
    """What may stand behind a number, in small letters without spaces, and what to multiply with."""
    above, slash, below = unit.partition("/")
    if above not in UNITS:
        words = unit.lower().replace(" ", "")
        return {words: 1.0, words.removesuffix("s"): 1.0}
    base = next(iter(UNITS[above].units), "")
    names = SPELT.get(base, above).split()
    found: dict[str, float] = {}
    for name in names:
        factor = float(UNITS[name].value / UNITS[above].value)
        for spelt in {
            name,
            WORDS.get(name, name),
            {"minute": "min", "dollar": "$"}.get(name, name),
        }:
            found[(spelt + slash + below).lower()] = factor
    if unit == "token/s":
        found |= {"tok/s": 1.0, "t/s": 1.0, "tokens/s": 1.0}
    return found


__all__ = ["Exercise", "ExerciseError", "load_exercises", "render_exercises", "render_missed"]
