"""The data plane: what runs on a device. It is told steps as data (`yaie.core.step`) and knows no
Request.

`worker.py` carries steps out: `seats.py` keeps what stays from step to step, `flat_batch.py` lays a
step's tokens side by side, `sampling.py` and `penalties.py` have the rows to draw for, `logprobs.py`
reads log-probabilities off. `threaded.py` runs a worker on a thread of its own, `replay.py` one in
another process from a file. `build.py` makes a worker, `sizing.py` says how large its pool is, and
`faults.py` whose fault an exception was.
"""
