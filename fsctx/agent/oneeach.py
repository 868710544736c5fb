"""One pilot on several devices: an agent for each, in processes of their own.

The agents are as independent as those of different pilots; what started them only passes signals on and waits.
"""

import os
import signal
from collections.abc import Callable, Sequence

from fsctx.agent.leaving import SIGNALS
from fsctx.agent.orphans import dies_with


def run_each(n: int, work: Callable[[int], int]) -> int:
    """Call `work(k)` for k < n in n new processes, and return the worst of their exit codes.

    In the new processes this returns (or raises) what `work` does. Must be called on the main thread, while there is
    no other. They are told to leave (SIGTERM) should this process end before them.
    """
    become_child = dies_with(os.getpid(), signal.SIGTERM)
    children: list[int] = []
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # until every child is known
    for number in range(n):
        child = os.fork()
        if child == 0:
            become_child()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            return work(number)
        children.append(child)
    _pass_on(children)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    return max(_exit_code(child) for child in children)


def _pass_on(children: Sequence[int]) -> None:
    def on_signal(number: int, _frame: object) -> None:
        for child in children:
            try:
                os.kill(child, number)
            except ProcessLookupError:
                continue

    for number in SIGNALS:
        signal.signal(number, on_signal)


def _exit_code(child: int) -> int:
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code
