"""Other engines on the same requests, each in a process of its own, which frees its memory at the end.

    python -m yaie.bench.peers NAME JOB-FILE

The job file is JSON: `settings` (model, dtype, device, max_model_len and more, see `process.py`) and
`runs`, each with `prompts` (token ids), `outputs` (their lengths) and `temperature`. The process writes
a line of JSON when it is ready, then reads the number of a run from each line of its input and answers
with a line: how many seconds that run took, and how many tokens each request got.

`process.py` is our side, `__main__.py` the other; `engines.py` has a class for each peer. The other side
imports nothing that needs a package of ours, so vllm and sglang may live in another environment.
"""
