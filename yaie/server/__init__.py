"""The HTTP server around the API that OpenAI clients speak, which is a part (`parts["api_server"]`).

`settings.py` says what can be set; `engine.py` starts the engine; `app.py` puts the application
together; `run.py` serves and drains it, on what `listen.py` bound and within the limits of
`connections.py`. A request passes through `request_head.py`, `keys.py` and `request_body.py`; a large
body is read beside the event loop (`body_reader.py`, `body_process.py`). `service.py` is what the part
is given, and `model_forms.py` how its model calls tools and thinks; `extras/` and `tools/` are what
clients may ask for beyond text, and `dialects/` has two more APIs for the same answers. Plain pieces of
a streamed answer go to the connection by `direct.py` where the part is the reference, everything else
through the part and ASGI. `health.py`, `metrics.py` and `logs.py` are for those who watch; `info.py`,
`tokens.py` and `openapi/` say what is here.
"""
