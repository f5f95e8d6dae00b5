"""`python -m yaie`: the command line, also where nothing is installed."""

from yaie.cli.main import main

main()
