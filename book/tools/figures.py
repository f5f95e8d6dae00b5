"""Figures that move: book/figures/<name>.toml and its trace, as an element of the page."""

import json
from typing import Any

from book.tools.markup import escape, inline
from book.tools.mdbook import ROOT
from yaie.core.compat import tomllib

FIGURES = ROOT / "book/figures"
TRACES = ROOT / "book/traces"
ELEMENTS = ROOT / "book/theme/figures"
NO_SCRIPTS = "With scripts this figure has controls, and computes its numbers for them."
FIELDS = {"element", "title", "caption", "legend", "trace", "predict", "data", "code"}


class FigureError(ValueError):
    """A figure's file is missing or does not make sense. The message says which and what."""


def render_figure(name: str, how: str = "", data: dict[str, Any] | None = None) -> str:
    """The HTML of a figure, in one line. how: "plays" for one that begins by itself. data: shown
    instead of what was recorded. Raises FigureError."""
    if how not in ("", "plays"):
        raise FigureError(
            f"figure {name}: {how!r} is nothing that a figure does; it may be 'plays'"
        )
    figure = load_figure(name)
    shown = {**(data if data is not None else _trace(figure)), **figure.get("data", {})}
    predict = _predict(name, figure)
    content = {
        "title": figure["title"],
        "data": shown,
        "predict": predict,
        "code": figure.get("code", {}),
    }
    element = f"yaie-{figure['element']}"
    # In a script element only "</" could end the text early.
    script = json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    return (
        f'<figure class="moving" id="figure-{name}" role="group" aria-labelledby="title-{name}">'
        f'<p class="figure-title" id="title-{name}">{inline(figure["title"])}</p>'
        f"{_legend(figure)}"
        f'<{element} data-name="{name}"{" data-plays" if how else ""}>'
        f'<script type="application/json">{script}</script>'
        f"{_fallback(shown, predict)}</{element}>"
        f"<figcaption>{inline(figure['caption'])}</figcaption></figure>"
    )


def load_figure(name: str) -> dict[str, Any]:
    """The table of one figure's file, with what it must have. Raises FigureError."""
    path = FIGURES / f"{name}.toml"
    if not path.is_file():
        raise FigureError(f"there is no book/figures/{name}.toml")
    figure = tomllib.loads(path.read_text("utf-8"))
    missing, unknown = {"element", "title", "caption"} - figure.keys(), figure.keys() - FIELDS
    if missing or unknown:
        raise FigureError(f"figure {name}: missing {sorted(missing)}, unknown {sorted(unknown)}")
    code = figure.get("code", {})
    if not all(isinstance(texts, list) and all(texts) for texts in code.values()):
        raise FigureError(f"figure {name}: code has texts of listings' lines, in lists, by thing")
    if not (ELEMENTS / f"{figure['element']}.js").is_file():
        raise FigureError(f"figure {name}: no book/theme/figures/{figure['element']}.js")
    return figure


def _legend(figure: dict[str, Any]) -> str:
    """What marks and colours mean, above the drawing; nothing if it needs no key."""
    words = figure.get("legend", "")
    return f'<p class="figure-legend">{inline(words)}</p>' if words else ""


def _trace(figure: dict[str, Any]) -> dict[str, Any]:
    if "trace" not in figure:
        return {}
    path = TRACES / f"{figure['trace']}.json"
    if not path.is_file():
        raise FigureError(f"no book/traces/{figure['trace']}.json; `make traces` records it")
    trace: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return trace


def _predict(name: str, figure: dict[str, Any]) -> dict[str, Any] | None:
    predict = figure.get("predict")
    if predict is None:
        return None
    rendered = {**predict, "ask": inline(predict["ask"])}
    if "choice" not in predict:
        if "number" not in predict:
            raise FigureError(f"figure {name}: its question has neither choices nor a number")
        return {**rendered, "why": inline(predict.get("why", ""))}
    if sum(choice.get("right", False) for choice in predict["choice"]) != 1:
        raise FigureError(f"figure {name}: one choice of its question must be right")
    rendered["choice"] = [
        {**choice, "text": inline(choice["text"]), "why": inline(choice.get("why", ""))}
        for choice in predict["choice"]
    ]
    return rendered


def _fallback(data: dict[str, Any], predict: dict[str, Any] | None) -> str:
    """What a reader without scripts gets: the captions of all steps, or the question and its answer."""
    tracks = data.get("tracks") or {"": data}
    lists = [_steps(key, track) for key, track in tracks.items() if "steps" in track]
    return "".join(lists) or f"{_answered(predict)}<p>{NO_SCRIPTS}</p>"


def _answered(predict: dict[str, Any] | None) -> str:
    if predict is None:
        return ""
    if "number" in predict:
        text = f"{predict['number']} {predict.get('unit', '')}".strip().replace(" %", "%")
        why = predict["why"]
    else:
        text, why = next(
            (choice["text"], choice["why"]) for choice in predict["choice"] if choice.get("right")
        )
    end = "" if text.endswith((".", "?", "!")) else "."
    answer = f"<details><summary>Answer</summary><p>{text}{end} {why}</p></details>"
    return f"<p>{predict['ask']}</p>{answer}"


def _steps(key: str, track: dict[str, Any]) -> str:
    label = f"<p>{escape(str(track.get('label', key)))}</p>" if key else ""
    said = [step["say"] for step in track["steps"]]
    told = [number for number, words in enumerate(said) if not number or words != said[number - 1]]
    items = "".join(
        f"<li>{escape(said[now])}</li>"
        if now == before + 1
        else f'<li value="{now + 1}">{escape(said[now])}</li>'
        for before, now in zip([-1, *told], told, strict=False)
    )
    return f"{label}<ol>{items}</ol>"
