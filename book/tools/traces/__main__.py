"""Record the traces of the book's figures: python -m book.tools.traces [--check] [NAME ...]

With --check nothing is written: it names the traces that are not what the code does now, and fails.
"""

import argparse
import sys

from book.tools.traces import ROOT, as_text, names, recorder, reference, trace_file
from yaie.system.files import write_whole
from yaie.system.streams import sound_streams


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 1 if a trace is out of step with the code, or has no recorder."""
    parser = argparse.ArgumentParser(prog="python -m book.tools.traces", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a trace; default: all of them")
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(names())):
        print(f"There is no trace {unknown[0]}; choose from {', '.join(names())}", file=sys.stderr)
        return 2
    chosen = options.names or names()
    if options.check:
        return check(chosen, all_of_them=not options.names)
    for name in chosen:
        text = as_text(recorder(name).record(reference))
        changed = write(name, text)
        print(f"{name}: {len(text):,} characters, {'written' if changed else 'as it was'}")
    return 0


def write(name: str, text: str) -> bool:
    """Keep a trace; returns whether its file had to change."""
    file = trace_file(name)
    if file.is_file() and file.read_text("utf-8") == text:
        return False
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, text)
    return True


def check(chosen: list[str], *, all_of_them: bool) -> int:
    """Compare the files with what the code does now, and name those that differ."""
    faults = [fault for name in chosen if (fault := difference(name))]
    if all_of_them:
        kept = {file.stem for file in trace_file("any").parent.glob("*.json")}
        faults += [f"{name}: no recorder writes it" for name in sorted(kept - set(chosen))]
    if faults:
        print(*faults, "Record them again with `make traces`.", sep="\n", file=sys.stderr)
        return 1
    print(f"{len(chosen)} traces are in step with the code.")
    return 0


def difference(name: str) -> str | None:
    """What is wrong with a trace's file; None if nothing is."""
    file = trace_file(name)
    if not file.is_file():
        return f"{file.relative_to(ROOT)} is missing"
    kept = file.read_text("utf-8").splitlines()
    now = as_text(recorder(name).record(reference)).splitlines()
    if kept == now:
        return None
    lines = zip(kept, now, strict=False)
    first = next((i for i, (a, b) in enumerate(lines, 1) if a != b), min(len(kept), len(now)) + 1)
    return f"{file.relative_to(ROOT)} is out of step with the code, from line {first} on"


if __name__ == "__main__":
    sys.exit(sound_streams(main)())
