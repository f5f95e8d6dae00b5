"""One model on several ranks: a worker in a process of its own for each, which all get the same steps.

control's process                         the process of rank r (1 to size - 1)
-----------------                         -------------------------------------
StepExecutor -> RankedWorker -> Worker    `rank_process`: Worker
                     |             \\__ sends and receives between ranks (`groups`) __/
                     +--- Crew ---- StepInput, StepMasks, "collect" over a pipe --->
                          Crew <--- done, or what went wrong -------------------

The other ranks are processes of control's (`processes`), or a launcher has started them on several
hosts, where messages go over gloo (`launch`, `meeting`, `hosts`, `host_rank`). `keeper` does not know
which.
"""
