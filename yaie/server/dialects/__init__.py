"""`POST /v1/responses` and `/v1/messages`: OpenAI's newer API and Anthropic's, built on chats.

`*_body.py` say what a body may hold, and the same in the words of a chat completion; `*_reply.py` tell
the typed pieces of the answer in each dialect's events, with what they share in `events.py`;
`event_stream.py` sends those; `messages_errors.py` puts failures into Anthropic's shape; `routes.py` has
the endpoints. Nothing is kept between two calls.
"""
