"""Serve the book and rebuild it on every change: python -m book.tools.serve [--port 3000]

Without a port, the first free one from 3000 on.
"""

import argparse
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing

from book.tools.mdbook import ROOT, MdBookError, environment, find_mdbook

HOST = "127.0.0.1"
PORTS = range(3000, 3100)


def main(arguments: list[str] | None = None) -> int:
    """Runs until interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m book.tools.serve", description="Serve the book."
    )
    parser.add_argument("--port", type=int, help="default: the first free one from 3000 on")
    port = parser.parse_args(arguments).port
    try:
        mdbook = find_mdbook()
        port = find_port([port] if port else PORTS)
    except (MdBookError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"The book is at http://{HOST}:{port} (Ctrl-C stops).", flush=True)
    command = [mdbook, "serve", "--hostname", HOST, "--port", str(port)]
    try:
        return subprocess.run(command, cwd=ROOT, env=environment()).returncode
    except KeyboardInterrupt:
        return 0


def find_port(candidates: Sequence[int]) -> int:
    """The first of these ports that nobody listens on. Raises OSError if there is none."""
    for port in candidates:
        with closing(socket.socket()) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except (OSError, OverflowError):
                continue
            return port
    raise OSError(f"no free port among {candidates[0]}..{candidates[-1]}; name one: --port 8123")


if __name__ == "__main__":
    sys.exit(main())
