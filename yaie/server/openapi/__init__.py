"""The OpenAPI document: what every endpoint takes and answers, its failures included.

FastAPI makes it. `document.py` has what is said of an endpoint beside its types; `part.py` says it of
the API part's endpoints, whose answers `completions.py` models; `examples.py` has bodies that work.
"""
