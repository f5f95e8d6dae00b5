"""The OpenAPI document: what every endpoint takes and answers, its failures included.

`document.py` has the table of endpoints and makes the document of it; `completions.py`, `responses.py`
and `messages.py` model what the endpoints below `/v1` answer, which are plain dicts made elsewhere;
`examples.py` has bodies that work. The models of all other endpoints stand beside those.
"""
