"""What clients send beyond the API: honoured by another name, refused by name, or left out and told.

A parameter that changes the answer is honoured or refused. A declaration, a history and a hint are taken
as they are, and what nobody knows is left out: clients of other servers send such fields without being
asked to. It happens before any part sees a body: `fields.py` has the verdict of each name, `top.py`
applies them, `validated.py` reads a body as what its endpoint takes and leaves out what that does not
know, `nearness.py` finds the name that a misspelled one was meant to be, and `notes.py` is where an answer
is told what was left out of its request.
"""
