"""One model on several ranks: a worker in a process of its own for each, which all get the same steps.

control's process                         the process of rank r (1 to size - 1)
-----------------                         -------------------------------------
StepExecutor -> RankedWorker -> Worker    `rank_process`: Worker
                     |             \\__ sends and receives between ranks (`groups`) __/
                     +--- RankExecutor ---- StepInput, StepMasks, "collect" over a pipe --->
                          RankExecutor <--- done, or what went wrong -------------------

The other ranks are processes of control's (`processes`), or a launcher has started them on several
hosts, where messages go over gloo (`launch`, `rendezvous`, `hosts`, `host_rank`). `rank_monitor` does
not know which.
"""
