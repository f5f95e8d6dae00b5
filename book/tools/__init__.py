"""What builds, checks, records, runs and serves the book. Nothing of the engine imports it."""

import sys

from yaie.system.interrupt import end_on_interrupt

if sys.argv[0] == "-m":  # as long as Python looks for the module that was named behind it
    end_on_interrupt()
