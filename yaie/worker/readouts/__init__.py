"""What a step brings besides tokens, and only if control asks for it (`StepInput.extras`): its key there
names the readout, which answers under the same key in `StepResult.extras`.

A further readout is a class in a file of its own, and a line here. What only some engines have, the
worker is given when it is built (`proposals.py`).
"""

from yaie.worker.readouts.logprobs import Logprobs
from yaie.worker.readouts.pooling import Pooling
from yaie.worker.readouts.prompt_logprobs import PromptLogprobs

READOUTS = {"prompt_logprobs": PromptLogprobs, "pooling": Pooling, "logprobs": Logprobs}
