"""An engine of one role as a process, for tests that kill it.

    python -m tests.engine.handover.side prefill|decode HOST:PORT

On the tutor, whose keys and values for a long prompt are more than the system buffers. The decode side
asks for one such prompt. It ends when its standard input does, so none outlives the test.
"""

import sys

from tests.engine.handover.conftest import GREEDY, PrefillServer, make
from tests.engine.mixed import run
from yaie.engine.handover.address import address_of
from yaie.engine.handover.role import Role

MODEL = "tutor"
PROMPT = [300 + number * 7 % 3000 for number in range(1200)]


def main(role: str, meet: str) -> None:
    if role == "prefill":
        PrefillServer(MODEL, address_of(meet), None)
    else:
        engine = make(MODEL, Role("decode", address_of(meet), 1))
        engine.add_request(PROMPT, GREEDY)
        run(engine)
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
