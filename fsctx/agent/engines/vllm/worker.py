"""What vLLM's worker processes can do beside computing. Loaded by them, by this module's name."""

import os
import signal

from fsctx.agent.orphans import dies_with


class DiesWithParent:
    """Mixed into vLLM's worker: the kernel ends it with the process that started it, whatever it waits for."""

    def die_with_parent(self) -> None:
        """See above. For workers that are processes of their own."""
        dies_with(os.getppid(), signal.SIGKILL)()
