"""The contract of every part: what the engine calls, and all that it calls.

A learner's part and the reference satisfy the same `Protocol`; a grader grades through it and through
nothing private. Shapes are written `[n, d]`; T is the number of query tokens in a step's flat batch.

    sampling    lab 1            scheduling   lab 6        kernels   labs 9 to 16
    layers      lab 2            stepping     lab 7        graphs    lab 17
    memory      lab 3            serving      lab 8        worker    given: what runs on a device
    prefixes    lab 4            drafting     lab 18
    attention   lab 5            quantizing   lab 19
                                 ranks        lab 20
                                 constraining lab 21
                                 states       lab 22
                                 rollback     lab 22
"""

from .attention import BatchAttention
from .drafting import Proposer
from .layers import Attend, TransformerOps
from .memory import BlockManager, KVCacheManager, KVPool
from .prefixes import RadixTree
from .sampling import Sampler
from .scheduling import Scheduler, SchedulingPolicy
from .serving import ApiServer, ModelService, OutputStream, Reply
from .stepping import Detokenizer, EngineCore, StopChecker
from .worker import Executor, PendingStep, StepHandle, Worker

__all__ = [
    "ApiServer",
    "Attend",
    "BatchAttention",
    "BlockManager",
    "Detokenizer",
    "EngineCore",
    "Executor",
    "KVCacheManager",
    "KVPool",
    "ModelService",
    "OutputStream",
    "PendingStep",
    "Proposer",
    "RadixTree",
    "Reply",
    "Sampler",
    "Scheduler",
    "SchedulingPolicy",
    "StepHandle",
    "StopChecker",
    "TransformerOps",
    "Worker",
]
