"""The learner's packages, one per lab: generated from `solutions` by `make stubs`, then filled in.

A lab is imported by name from here or from `solutions`; nothing else differs.
"""
