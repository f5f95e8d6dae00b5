"""CUDA C++ for Python, without a build system: compile a folder of `.cu` files, call what is in it.

`library.py` is what a lab's binding uses; `nvcc.py` finds the compiler, `compiler.py` runs it and keeps
what it made; `include/` is what the files include on a GPU, and `on_cpu/` runs them without one.
"""

from .library import CudaLibrary

__all__ = ["CudaLibrary"]
