"""What clients send beyond the API: honoured by another name, refused by name, or left out and told.

A parameter that changes the answer is honoured or refused. A declaration, a history and a hint are taken
as they are, and unknown fields are left out: clients of other servers send such fields without being
asked to. All this happens before any part sees a body, a learner's part least of all.

`fields.py` has the verdict of each name, `top.py` applies them; `declared.py` leaves out tools that no
client can be asked to run, `history.py` mends the messages of a chat; `validated.py` reads a body as
what its endpoint takes and leaves out what that does not know; `nearness.py` finds what a misspelled
name was meant to be. In `notes.py` an answer learns what was left out of its request.
"""
