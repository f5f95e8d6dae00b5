"""Models all of whose layers see a window of a text: blocks behind it go back while a request runs.

`yaie.worker.windows` says which models those are, and how much a request holds then. `cache.py` stands
in the place of lab 3's KVCacheManager, on its BlockManager if `blocks.py` finds that it will do.
`prefixes.py` keeps lab 4's tree, in which the beginning of a text may be gone.
"""
