"""The control plane: it takes requests in, runs the parts that decide steps, and gives text back.

A server talks to `background/`, which says itself what goes where; behind it runs `llm_engine.py`, the
engine. Who calls that by itself, as `yaie generate` does, needs nothing else (`offline.py`). `loaded.py`
makes it of a model, a backend and the parts in use; `input/` makes requests of what is asked.

What decides are labs: 6 who runs, 3 and 4 in which blocks, 7 when a request ends. `build.py` puts them
together, and `machine.py` names the loops from the outside in. `step/` is what stands around the step
loop: it sends plans to the worker, and keeps the failure of one request from the others.

What hangs on a step only if it is asked for: `asks/` (what requests may ask of the worker), `drafting/`
(speculation), `handover/` (prefill and decode apart), `watching/` (the X-ray), `states/` and `windows/`
(models whose layers keep a state, or see a window of a text).
"""
