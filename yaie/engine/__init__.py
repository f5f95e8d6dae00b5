"""The control plane: it takes requests in, decides steps, and makes text of what comes out.

A server talks to `background/`: `async_engine.py` on the event loop, `prompts.py`, where texts become
tokens, and `engine_thread.py` or `engine_process.py`, where the engine runs. `llm_engine.py` is that
engine; who calls it by itself, as `yaie generate` does, needs nothing else (`offline.py`). `input/`
makes requests of what is asked. `build.py` puts together what runs the steps: lab 7's EngineCore, on a
GPU within lab 17's loop, within what keeps the failure of one request from the others
(`step/isolated.py`) or, where parts are a learner's, from the engine (`step/recovery.py`). A plan goes
to the worker by `step/` (`executor.py`, `encoder.py`).

What hangs on a step only if it is asked for: `asks/` (what requests may ask of the worker), `drafting/`
(speculation), `handover/` (prefill and decode apart), `watching/` (the X-ray).
"""
