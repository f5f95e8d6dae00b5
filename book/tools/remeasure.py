"""Measure recorded figures again: those of a CPU, or the ones that are named.

    python -m book.tools.remeasure [NAME ...] [--stale]

Each command runs by itself, one after the other, on a machine that should do nothing else. A file is
replaced when its command has ended well, and is told then which code it has measured.
"""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from book.tools.evidence import EVIDENCE, EvidenceError
from book.tools.freshness import Source, load_sources, stale, stamp
from book.tools.mdbook import ROOT
from yaie.system.terminal import Terminal

BUSY = 0.5
"""Processes that wait for a core, over the last minute: more of them change figures."""

err = Terminal(stderr=True)


def command(source: Source, into: Path) -> list[str]:
    """What to run, so that the figures come to lie in `into`."""
    words = shlex.split(source.run)
    if words[:2] == ["yaie", "bench"]:
        return [sys.executable, "-m", *words, "--json", str(into)]
    return [sys.executable, *words[1:]]


def measure(source: Source) -> str:
    """Why it failed, or nothing."""
    final = EVIDENCE / f"{source.name}.json"
    own = source.run.startswith("yaie bench")
    into = final.with_suffix(".json.new") if own else final
    ran = subprocess.run(
        command(source, into), cwd=ROOT, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        into.unlink(missing_ok=True) if own else None
        return "\n".join((ran.stderr or ran.stdout).strip().splitlines()[-5:])
    if own:
        into.replace(final)
    stamp(source, final)
    return ""


def remeasure(
    names: Annotated[list[str] | None, typer.Argument(help="Files of book/evidence.")] = None,
    only_stale: Annotated[
        bool, typer.Option("--stale", help="Only those whose code has changed since.")
    ] = False,
) -> None:
    """Measure recorded figures again: all that a CPU can, or those that are named."""
    sources = load_sources()
    unknown = sorted(set(names or ()) - set(sources))
    if unknown:
        raise typer.BadParameter(f"no book/evidence/{unknown[0]}.json; sources.toml lists them")
    chosen = [sources[name] for name in names] if names else list(sources.values())
    if not names:
        chosen = [source for source in chosen if source.on == "cpu"]
    for source in chosen:
        if source.on == "hand":
            raise typer.BadParameter(f"{source.name} is no command's: {source.run}")
    if only_stale:
        old = stale()
        chosen = [source for source in chosen if source.name in old]
    if (load := os.getloadavg()[0]) > BUSY:
        busy = f"This machine is busy (load {load:.1f}): times will be too long."
        err.print(busy, style="yellow")
    failed = False
    for number, source in enumerate(chosen, 1):
        err.print(f"{number}/{len(chosen)} {source.name}: {source.run}", soft_wrap=True)
        begun = time.monotonic()
        problem = measure(source)
        failed |= bool(problem)
        took = f"  {time.monotonic() - begun:.0f} s"
        if problem:
            err.print(Text(f"{took}, failed\n", "red").append(problem, "default"), soft_wrap=True)
        else:
            err.print(took, soft_wrap=True)
    if failed:
        raise typer.Exit(1)


def main() -> None:
    try:
        typer.run(remeasure)
    except EvidenceError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
