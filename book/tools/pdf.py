"""Print the whole book as a PDF with an outline, by Chromium: python -m book.tools.pdf

It prints book/out/print.html, which `make docs` makes, to book/out/yaie.pdf. Exit status: 0 if it is
there, 1 if Chromium failed, 2 if there is no Chromium or no built book.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from book.tools.mdbook import ROOT
from yaie.system.streams import sound_streams

PAGE = ROOT / "book/out/print.html"
PDF = ROOT / "book/out/yaie.pdf"
NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "chrome-headless-shell",
    "chromium-headless-shell",
    "microsoft-edge",
)
MAC = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
SECONDS = 300
# Without these a browser looks for updates, lists to block, and models to install.
QUIET = (
    "--headless=new",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-features=OptimizationHints,MediaRouter,Translate",
    "--metrics-recording-only",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-pings",
    "--proxy-server=127.0.0.1:9",  # nothing listens there: the book is printed from the disk alone
    "--hide-scrollbars",
)


class PdfError(RuntimeError):
    """Nothing to print, or nothing to print it with."""


def main() -> int:
    """Print what is built."""
    try:
        chromium = find_chromium()
        if not PAGE.is_file():
            raise PdfError(f"there is no {PAGE.relative_to(ROOT)}; `make docs` builds it")
    except PdfError as error:
        print(error, file=sys.stderr)
        return 2
    fault = print_pdf(chromium, PAGE, PDF)
    if fault:
        print(fault, file=sys.stderr)
        return 1
    print(f"The book is printed: {PDF} ({PDF.stat().st_size / 1e6:.1f} MB)")
    return 0


def find_chromium() -> str:
    """The browser that CHROMIUM names, or the first that is installed. Raises PdfError."""
    wanted = os.environ.get("CHROMIUM")
    candidates = (wanted,) if wanted else (*NAMES, *MAC)
    for candidate in candidates:
        if found := shutil.which(candidate):
            return found
    if wanted:
        raise PdfError(f"CHROMIUM={wanted} is not a program")
    raise PdfError(
        "printing the book needs Chromium or Chrome, and none was found; install one "
        "(on Debian or Ubuntu: apt install chromium), or name it: CHROMIUM=/path/to/chrome make pdf"
    )


def print_pdf(chromium: str, page: Path, pdf: Path) -> str:
    """Print a page; returns what went wrong, or nothing."""
    pdf.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="yaie-pdf-", ignore_cleanup_errors=True) as profile:
        command = [
            chromium,
            *QUIET,
            *(["--no-sandbox"] if is_root() else []),
            f"--user-data-dir={profile}",
            "--no-pdf-header-footer",
            "--generate-pdf-document-outline",
            f"--print-to-pdf={pdf}",
            page.resolve().as_uri(),
        ]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"{chromium} had not printed the book after {SECONDS} s"
    if run.returncode or not pdf.is_file():
        return f"{chromium} did not print the book (status {run.returncode}):\n{run.stderr.strip()}"
    return ""


def is_root() -> bool:
    """As root, in a container, Chromium refuses to start with its sandbox."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


if __name__ == "__main__":
    sys.exit(sound_streams(main)())
