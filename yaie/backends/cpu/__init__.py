"""The backend in C++ for CPUs: attention where keys and values lie, and a layer's small operations.

`source/` is compiled once for each processor (`build.py`), called through ctypes (`library.py`), and
stands where the engine expects labs 2 and 5 (`attention.py`, `ops.py`). Where `--mine` names a
learner's part, that part runs.
"""
