"""Speculative decoding, the part of control: drafts for the requests of a plan, and how many.

ngrams     a proposer: what followed the last few tokens when they stood in the text before
length     what steps cost, measured
pace       how many drafts are worth it, by lab 18, and when none are made for a while
models     a proposer: a small model, on the worker's side, and its places in a cache of its own
lookahead  a proposer: what a head on the model's states made behind the step before
loading    loads these two
drafter    adds drafts to a plan before it is sent
"""
