"""The page that `show` writes: figures with the book's styles and scripts, all in one file."""

import html
import json
import re
from dataclasses import dataclass

from book.tools.figures import ELEMENTS, FIGURES, load_figure, render_figure
from book.tools.traces import ROOT, Trace
from yaie.core.compat import tomllib
from yaie.curriculum.manifest import load_curriculum

THEME = ROOT / "book/theme"
CONTENT = re.compile(r'(<script type="application/json">)(.*?)(</script>)', re.S)
FONT = re.compile(r"@font-face\s*\{.*?\}", re.S)
# What mdBook's own style sheets give the book's.
STYLE = """
.light { --bg: #fff; --fg: #000; --links: #20609f; }
.navy { --bg: #161923; --fg: #bcbdd0; --links: #6cb6e6; }
:root { --mono-font: "Source Code Pro", Consolas, "Ubuntu Mono", Menlo, "DejaVu Sans Mono", monospace; }
html { font-size: 62.5%; background: var(--bg); color: var(--fg); }
body { margin: 0; font: 1.6rem/1.45 "Open Sans", sans-serif; }
main { max-width: 1640px; margin: 0 auto; padding: 1em 15px 4em; }
h1, .words { max-width: 800px; }
a { color: var(--links); }
.pair {
  display: grid; gap: 0 1.5em;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 560px), 1fr));
}
.pair > div { min-width: 0; max-width: 810px; }
h3 { margin: 1em 0 0; }
figure.moving { margin-top: 0.6em; }
"""
DARK_OR_LIGHT = """
const dark = matchMedia('(prefers-color-scheme: dark)');
const paint = () => { document.documentElement.className = dark.matches ? 'navy' : 'light'; };
dark.onchange = paint;
paint();
"""
# Both figures of a pair open at the step in question, and move together.
TOGETHER = """
for (const pair of document.querySelectorAll('.pair')) {
  const figures = [...pair.querySelectorAll('figure.moving > [data-name]')].filter((each) => each.go);
  for (const figure of figures) {
    if (figure.chosen && pair.dataset.track) figure.chosen.value = pair.dataset.track;
    figure.go(Number(pair.dataset.start));
    const follow = () => figures.forEach((each) => {
      const track = figure.chosen?.value;
      if (each === figure || (each.index === figure.index && each.chosen?.value === track)) return;
      if (each.chosen) each.chosen.value = track;
      each.go(figure.index);
    });
    for (const event of ['click', 'keydown', 'change']) figure.addEventListener(event, follow);
  }
}
"""


@dataclass
class Pair:
    """One figure: the learner's trace, and the reference's where that is something else.

    mine: None if nothing was recorded. start, track: the step to open at, from 0 on, and of what.
    """

    name: str
    mine: Trace | None
    theirs: Trace | None
    verdict: str
    start: int = 0
    track: str = ""
    failed: bool = False


def page(lab: str, whose: str, pairs: list[Pair]) -> str:
    """The whole page. whose: "your radix_tree"."""
    title = f"{load_curriculum()[lab].title}: {whose}"
    body = "".join(_section(pair, whose) for pair in pairs)
    scripts = "".join(f"<script>{_inline_script(script)}</script>" for script in _scripts(pairs))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}{_styles()}</style>"
        f"<script>{DARK_OR_LIGHT}</script></head>"
        f'<body class="content"><main><h1>{html.escape(title)}</h1>{body}</main>{scripts}'
        f"<script>{TOGETHER}</script></body></html>\n"
    )


def _section(pair: Pair, whose: str) -> str:
    mine = _figure(pair.name, pair.mine, whose) if pair.mine else "<p>Nothing was recorded.</p>"
    columns = f"<div><h3>{html.escape(whose.capitalize())}</h3>{mine}</div>"
    note = ""
    if pair.theirs is not None:
        columns += f"<div><h3>The reference</h3>{_figure(pair.name, pair.theirs)}</div>"
        if not pair.failed:
            note = (
                " A difference need not be a mistake: which of several free blocks is taken, for "
                "example, is for you to choose. The grader knows what must hold."
            )
    return (
        f'<p class="words"><strong>{html.escape(pair.name)}</strong>: {html.escape(pair.verdict)}.'
        f'{note}</p><div class="pair" data-start="{pair.start}" '
        f'data-track="{html.escape(pair.track)}">{columns}</div>'
    )


def _figure(name: str, trace: Trace, whose: str = "") -> str:
    """A figure without its question. whose: for the learner's, which needs ids of its own."""
    rendered = render_figure(name, data=trace)
    rendered = CONTENT.sub(
        lambda found: found[1] + _without_question(found[2]) + found[3], rendered
    )
    if whose:
        rendered = re.sub(rf"\b(figure|title)-{name}\b", rf"\1-mine-{name}", rendered)
        rendered = rendered.replace("ecorded from the reference", f"ecorded from {whose}")
    return rendered


def _without_question(content: str) -> str:
    kept = {**json.loads(content), "predict": None}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")


def _styles() -> str:
    sheets = [path.read_text("utf-8") for path in sorted(THEME.glob("*.css"))]
    return FONT.sub("", "".join(sheets))  # a font's file would have to be fetched


def _scripts(pairs: list[Pair]) -> list[str]:
    """What figures share, in the order in which the book loads it, then these figures' elements."""
    elements = {load_figure(path.stem)["element"] for path in FIGURES.glob("*.toml")}
    book = tomllib.loads((ROOT / "book.toml").read_text("utf-8"))
    loaded = [ROOT / path for path in book["output"]["html"]["additional-js"]]
    shared = [path for path in loaded if path.parent == ELEMENTS and path.stem not in elements]
    own = [ELEMENTS / f"{load_figure(pair.name)['element']}.js" for pair in pairs]
    return [path.read_text("utf-8") for path in dict.fromkeys([*shared, *own])]


def _inline_script(script: str) -> str:
    """Only "</script" could end the text early."""
    return re.sub(r"</(?=script)", r"<\\/", script, flags=re.IGNORECASE)
