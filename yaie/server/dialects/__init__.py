"""`POST /v1/responses` and `/v1/messages`: OpenAI's newer API and Anthropic's, built on chats.

`*_body.py` say what a body may hold, and the same in the words of a chat completion: with
`responses_tools.py`, `responses_input.py`, `messages_tools.py` and `messages_turns.py` for what agents
declare and send back. `leniency.py` leaves out what means nothing here, `arguments.py` mends calls of a
history, `custom_input.py` reads the text that a custom tool is called with. `*_reply.py` tell the typed
pieces of the answer in each dialect's events, with what they share in `events.py`; `event_stream.py`
sends those; `messages_errors.py` puts failures into Anthropic's shape; `endpoints.py` has the routes.
Nothing is kept between two calls.
"""
