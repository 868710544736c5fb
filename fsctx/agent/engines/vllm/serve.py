"""The program of the process that computes: loads a model, then answers until the agent closes the pipe, or ends."""

import signal
import sys
from multiprocessing.connection import Connection

from fsctx.agent.engines.vllm.messages import Failed
from fsctx.agent.leaving import SIGNALS
from fsctx.agent.orphans import dies_with


def main(parent: int, pipe: Connection) -> None:
    """Serve the agent with process number `parent`. Signals are the agent's to obey: it decides what is finished."""
    dies_with(parent, signal.SIGKILL)()
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    job = pipe.recv()
    from fsctx.agent.engines.vllm.resident import Resident, attempt  # takes some seconds

    resident = attempt(lambda: Resident(job))
    if isinstance(resident, Failed):
        pipe.send(resident)
        return
    pipe.send(resident.loaded)
    while True:
        try:
            questions = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(attempt(lambda: resident.answer(questions)))  # noqa: B023 - called at once


if __name__ == "__main__":
    main(int(sys.argv[1]), Connection(int(sys.argv[2])))
