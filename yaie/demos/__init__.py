"""What a finished lab changes, on a laptop: a short run of the engine without the part, and one with it.

`yaie lab demo LAB` prints it. `table.py` knows the demos; each measures its numbers in the run that it
shows (`runs.py`, `traffic.py`), so a wrong or a wasteful part shows in them. The chapter of each lab
begins its section "Plug it in" with what comes out.
"""
