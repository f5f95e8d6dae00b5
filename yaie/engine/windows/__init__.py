"""Models whose layers see a window of a text: blocks behind it go back while a request runs.

`yaie.worker.windows` says which models those are, and how much a request holds then. `cache.py` stands
in the place of lab 3's KVCacheManager if every layer has a window, on its BlockManager if `blocks.py`
finds that it will do. `prefixes.py` keeps lab 4's tree, in which the beginning of a text may be gone.

If other layers see all of a text, `grouped.py` has both: lab 3's manager for these, and `cache.py` for
those with a window. `encoder.py` sends the tables of both to the worker (`yaie.worker.layer_groups`).
"""
