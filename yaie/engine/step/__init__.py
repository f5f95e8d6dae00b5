"""What stands around the step loop. That is lab 7's (`solutions/engine/core.py`), or lab 17's around it
(`solutions/cuda_graphs/overlapped.py`).

    hooks           what changes a plan or learns from a result: `counters`, `pacer`, `thread_governor`
    executor        sends a plan to a worker, and takes over what comes back
    encoder         the plan as data; `masking`: what its grammars allow
    request_texts   makes what makes text of tokens, for each request: lab 7's Detokenizer, or
    byte_text       a faster one, where lab 7 is the reference and tokens stand for bytes
    late_stops      a stop checker for requests with `min_tokens`
    isolation       notes which requests failed by themselves, and why
    isolated        ends those, behind the step
    recovery        where a learner's part failed in what all share: ends what had started, begins anew
    failures        why a step went wrong, in words; `explaining`: in whose code
"""
