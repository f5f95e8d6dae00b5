"""The HTTP server around the API that OpenAI clients speak, which is a part (`parts["api_server"]`).

`app.py` puts it together; `service.py` is the backend that the part is given; `health.py` answers
`/health`; `limits.py` refuses bodies that are too large; `run.py` binds, loads, serves and drains.
"""
