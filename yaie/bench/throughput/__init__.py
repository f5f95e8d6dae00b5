"""`yaie bench throughput`: a workload run to its end, beside peers, a limit and less of the engine.

`command.py` is what the command line calls. `asked.py` says what was asked for, `setting.py` knows the
model, `drawn.py` draws the requests and `contestants.py` runs them. The workloads random and nano are
measured in `rates.py`, fixed and prefix in files of their names; `ablation.py` switches one technique
off at a time.
"""
