"""The data plane: what runs on a device. It is told steps as data (`yaie.core.step`) and knows no
Request.

`worker.py` carries steps out: `input_batch.py` keeps what stays from step to step, `layout.py` lays
a step's tokens side by side, and `replaying.py` has the steps that CUDA graphs replay. What only some
requests ask for hangs on it: `rules` change logits before the sampler draws, or how it draws from them,
and `readouts` bring something besides tokens. A step under way is a `StepFuture`, whichever worker it is
with: `staged.py` is one stage of a pipeline, `threaded.py` runs on a thread of its own, `parallel` on
several devices, `replay.py` from a file.
`build.py` makes a worker, `sizing.py` says how large its pool is, and `faults.py` whose fault an
exception was.
"""
