"""Prefill and decode in two engines: one computes prompts, the other goes on from its blocks.

    decode engine                                        prefill engine
    -------------                                        --------------
    a prompt comes; its cached blocks are counted
    PROMPT number, tokens, first block that lacks  --->  computes the prompt like any other
                                                         its full blocks are in the tree then
    stores the blocks, files them in its tree     <---   BLOCKS number, and their keys and values
    admits the request, which finds them cached

Whatever goes wrong on the way, the request is admitted all the same and computes what it lacks.

    base       what an engine without a role does
    store      whole blocks out of an engine's cache, and into it
    layout     what must be alike on both sides
    address    where they meet: a socket's path on one host, a host and a port between two
    messages   what the two tell each other
    memory     shared memory that nobody can make shorter or change
    wire       messages, with blocks in shared memory (one host) or behind them (TCP)
    greeting   what is said first: do they fit, does each know the secret
    channel    a connection on threads of its own
    link       the decode side's, made again when it has ended
    prefill    the side that computes prompts for others
    decode     the side that asks for them
"""
