"""Build the book into book/out and find what is wrong with it: python -m book.tools.build

mdBook exits 0 on most mistakes. Its log and `book.tools.check` tell; either fails the build.
"""

import re
import subprocess
import sys

from book.tools.check import check_book
from book.tools.links import link_faults
from book.tools.mdbook import ROOT, MdBookError, environment, find_mdbook
from book.tools.previews import add_previews
from book.tools.repository import without_a_way_back
from book.tools.search import add_terms
from book.tools.stills import add_stills
from book.tools.typed import faults as typed_faults
from yaie.system.streams import sound_streams

COMPLAINT = re.compile(r"^\s*(ERROR|WARN)\b")


def main() -> int:
    """Exit status: 0 for a book without a fault."""
    try:
        mdbook = find_mdbook()
    except MdBookError as error:
        print(error, file=sys.stderr)
        return 2
    build = subprocess.run(
        [mdbook, "build"], cwd=ROOT, env=environment(), text=True, capture_output=True
    )
    faults = complaints(build.stdout + build.stderr)
    if build.returncode and not faults:
        faults = [build.stderr.strip()]
    if not build.returncode:
        add_previews(ROOT / "book/out")
        faults += add_terms(ROOT / "book/out") + add_stills(ROOT / "book/out")
        faults += check_book(ROOT / "book/src", ROOT / "book/out")
    faults += [*link_faults(ROOT), *typed_faults(), *filter(None, [without_a_way_back()])]
    if faults:
        print("\n".join(faults), f"The book has {len(faults)} fault(s).", sep="\n", file=sys.stderr)
        return 1
    print(f"The book is built, without a fault: {ROOT / 'book/out/index.html'}")
    return 0


def complaints(log: str) -> list[str]:
    """The lines of mdBook's log that say something is wrong."""
    return [line.strip() for line in log.splitlines() if COMPLAINT.match(line)]


if __name__ == "__main__":
    sys.exit(sound_streams(main)())
