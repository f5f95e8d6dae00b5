"""An X-ray whose engine is the test: it says which records come, and hears what is asked for."""

from typing import Any

MOUNTED = """async ([header, canPace]) => {
  const { mount } = await import('./xray/mount.js');
  window.asked = [];
  const ask = (what) => async () => { window.asked.push(what); };
  const source = {
    kind: 'live', name: 'a test', canPace, step: ask('step'), pause: ask('pause'), resume: ask('resume'),
    read: (take, say, signal) => new Promise((resolve) => {
      window.take = take;
      say('connected');
      take(header);
      signal.addEventListener('abort', resolve);
    }),
  };
  window.xray = mount(document.getElementById('xray'), source);
}"""


def mounted(page: Any, header: dict[str, Any] | None = None, *, can_pace: bool = False) -> None:
    """The page shows this engine in place of what was there."""
    page.wait_for_selector(".xray")
    page.evaluate(
        MOUNTED, [{"kind": "header", "v": 1, "num_blocks": 8, **(header or {})}, can_pace]
    )
    page.wait_for_selector(".xray[data-connection=connected]")


def come(page: Any, *records: dict[str, Any]) -> None:
    """These records arrive."""
    page.evaluate("(records) => records.forEach((record) => take(record))", list(records))


def decode(n: int, *ids: str, merged: int = 1) -> dict[str, Any]:
    """A step, or several in one record, that computes a token of each request."""
    rows = [
        {
            "id": name,
            "start": 100 + n - merged,
            "num_tokens": merged,
            "out": [7] * merged,
            "text": "a",
        }
        for name in ids
    ]
    return {"kind": "step", "n": n, "t": n / 100, "merged": merged, "rows": rows, "running": ids}
