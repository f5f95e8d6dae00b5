"""`POST /v1/messages`: Anthropic's API, on the way that chat completions go.

`schemas.py` says what a body may hold; `chat.py` makes the body of a chat completion out of it;
`reply.py` shapes what the engine says as a message or as its events; `blocks.py` holds the blocks of its
content; `errors.py` puts failures into Anthropic's shape; `routes.py` wires the endpoints. Nothing is
kept between two calls.
"""
