"""The OpenAI-compatible HTTP server.

`app.py` puts it together; `routes.py` answers; `schemas.py` says what a request may hold; `errors.py`
turns every failure into OpenAI's error object; `streaming.py` sends answers and notices clients that
leave; `run.py` binds, loads, serves and drains.
"""
