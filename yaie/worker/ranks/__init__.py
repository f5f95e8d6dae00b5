"""One model on several ranks: a worker in a process of its own for each, which all get the same steps.

control's process                         the process of rank r (1 to size - 1)
-----------------                         -------------------------------------
StepExecutor -> RankedWorker -> Worker    `rank_process`: Worker
                     |             \\__ sends and receives between ranks (`groups`) __/
                     +--- Crew ---- StepInput, StepMasks, "collect" over a pipe --->
                          Crew <--- done, or what went wrong -------------------
"""
