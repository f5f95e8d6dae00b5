"""A picture of paired runs, drawn from a recorded comparison: {{#pairs throughput}}."""

from book.tools.evidence import EvidenceError, load
from book.tools.markup import escape

WIDTH, TALL, TOP = 380, 130, 30
SHADES = (("var(--y-blue)", 0.8), ("currentColor", 0.12))


def render_pairs(name: str) -> str:
    """The SVG of `book/evidence/<name>.json`: both rates of each pair, and its ratio. EvidenceError."""
    found = load(name)
    try:
        ours, *_ = found["tokens_per_second"]
        peer = str(found["ratio"]["to"])
        pairs = list(
            zip(found["tokens_per_second"][ours], found["tokens_per_second"][peer], strict=True)
        )
        ratios = found["ratio"]["values"]
    except (KeyError, ValueError) as error:
        raise EvidenceError(f"{name} holds no runs in pairs: {error}") from None
    most = max(max(pair) for pair in pairs)
    step = WIDTH / len(pairs)
    drawn = "".join(
        _pair(step * i, step, pair, ratio, most)
        for i, (pair, ratio) in enumerate(zip(pairs, ratios, strict=True))
    )
    says = "; ".join(
        f"{one:,.0f} and {other:,.0f}, ratio {ratio:.2f}"
        for (one, other), ratio in zip(pairs, ratios, strict=True)
    )
    title = f"Output tokens a second in {len(pairs)} pairs of runs"
    return (
        f'<svg viewBox="0 0 {WIDTH} {TOP + TALL + 46}" role="img" aria-label="{title}: {says}" '
        'style="max-width: 500px" font-size="13" fill="currentColor">'
        '<rect x="4" y="5" width="14" height="12" fill="var(--y-blue)" fill-opacity="0.8"/>'
        '<text x="24" y="16">YAIE</text>'
        f'<rect x="74" y="5" width="14" height="12" fill-opacity="0.12" stroke="currentColor"/>'
        f'<text x="94" y="16">{escape(peer)}</text>{drawn}</svg>'
    )


def _pair(x: float, step: float, pair: tuple[float, float], ratio: float, most: float) -> str:
    wide = step / 2 - 5
    bars = "".join(
        f'<rect x="{x + 3 + i * (wide + 3):.1f}" y="{TOP + TALL - TALL * rate / most:.1f}" '
        f'width="{wide:.1f}" height="{TALL * rate / most:.1f}" stroke="currentColor" '
        f'fill="{colour}" fill-opacity="{shade}"/>'
        for i, (rate, (colour, shade)) in enumerate(zip(pair, SHADES, strict=True))
    )
    rates = "".join(
        f'<text x="{x + 3 + i * (wide + 3) + wide / 2:.1f}" y="{TOP + TALL + 17}" '
        f'text-anchor="middle" font-size="12">{rate:,.0f}</text>'
        for i, rate in enumerate(pair)
    )
    return (
        f'{bars}{rates}<text x="{x + step / 2:.1f}" y="{TOP + TALL + 38}" text-anchor="middle" '
        f'font-weight="600">{ratio:.2f} times</text>'
    )
