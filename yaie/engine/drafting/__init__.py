"""Speculative decoding, the part of control: drafts for the requests of a plan, and how many.

ngrams     a proposer: what followed the last few tokens when they stood in the text before
length     how many drafts are worth their verification, from what was measured
drafter    adds drafts to a plan before it is sent
"""
