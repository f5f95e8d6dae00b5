"""`yaie` and `python -m yaie`: the command line, which Ctrl-C ends from its first import on."""

from yaie.system.interrupt import Interruptible


def main() -> None:
    """Run the command line. Little is imported before: a Ctrl-C there would show a traceback."""
    with Interruptible():
        from yaie.cli.main import main as run

        run()


if __name__ == "__main__":
    main()
