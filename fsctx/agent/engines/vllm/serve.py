"""The program of the process that computes: loads a model, then answers until the agent closes the pipe, or ends."""

import signal
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Protocol, TypeVar

from fsctx.agent.engines.vllm.messages import Answer, Failed, Job, Loaded, Question
from fsctx.agent.leaving import SIGNALS
from fsctx.agent.orphans import dies_with
from fsctx.errors import EngineError, FsctxError, Unfit

Result = TypeVar("Result")


class Answering(Protocol):
    """A model that is loaded."""

    @property
    def loaded(self) -> Loaded:
        """What it is."""

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        """Return one answer to each question, in order."""


def main(load: Callable[[Job], Answering]) -> None:
    """Serve the agent whose process is the first argument, by the pipe that is the second.

    Signals are the agent's to obey: it decides what is finished.
    """
    dies_with(int(sys.argv[1]), signal.SIGKILL)()
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    pipe = Connection(int(sys.argv[2]))
    job = pipe.recv()
    model = _attempt(lambda: load(job))
    if isinstance(model, Failed):
        pipe.send(model)
        return
    pipe.send(model.loaded)
    while True:
        try:
            questions = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(_attempt(lambda: model.answer(questions)))  # noqa: B023 - called at once


def _attempt(call: Callable[[], Result]) -> Result | Failed:
    """Return what a call returns, or `Failed`, with vLLM's errors as the agent understands them.

    A request that vLLM refuses leaves it as it was. After any other error nothing is known of it: it counts as dead.
    """
    try:
        return call()
    except FsctxError as error:
        return Failed(error)
    except Exception as error:  # noqa: BLE001 - not all of vLLM's errors go through a pipe
        exceptions = sys.modules.get("vllm.exceptions")
        said = f"{type(error).__name__}: {(str(error).strip() or '-').splitlines()[0]}"
        is_refusal = exceptions is not None and isinstance(error, exceptions.VLLMClientError)
        return Failed(EngineError(said) if is_refusal else Unfit(f"vLLM failed ({said})"))


def _load(job: Job) -> Answering:
    from fsctx.agent.engines.vllm.resident import Resident  # takes some seconds

    return Resident(job)


if __name__ == "__main__":
    main(_load)
