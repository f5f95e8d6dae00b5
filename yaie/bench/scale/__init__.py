"""`yaie bench scale`: what more ranks bring, measured where there are ranks and predicted where not.

sizes       what a rank reads, multiplies and sends in a step: counted, from the layout alone
links       a link's latency and bandwidth, from timed all-reduces
machines    known machines, whose figures are on the evidence page
rank        the process of a rank that is measured
crew        those processes, and what they are asked
predict     a step's time from these pieces
command     the tables
"""
