"""Prefill and decode in two engines: one computes prompts, the other goes on from its blocks.

    decode engine                                        prefill engine
    -------------                                        --------------
    a prompt comes; its cached blocks are counted
    PROMPT number, tokens, first block that lacks  --->  computes the prompt like any other
                                                         its full blocks are in the tree then
    stores the blocks, files them in its tree     <---   BLOCKS number, first, count, and an open file of
    admits the request, which finds them cached          shared memory that has no name

Whatever goes wrong on the way, the request is admitted all the same and computes what it lacks.

    base       what an engine without a role does
    store      whole blocks out of an engine's cache, and into it
    layout     what must be alike on both sides
    channel    messages and open files over a Unix socket
    prefill    the side that computes prompts for others
    decode     the side that asks for them
"""
