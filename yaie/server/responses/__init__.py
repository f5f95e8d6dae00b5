"""`POST /v1/responses`: OpenAI's newer API, on the way that chat completions go.

`schemas.py` says what a body may hold; `chat.py` makes the body of a chat completion out of it;
`reply.py` shapes what the engine says as a response or as its typed events; `items.py` holds the items
of an output; `routes.py` wires the endpoint and sends. Nothing is kept between two calls.
"""
