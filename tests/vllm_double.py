"""A program in place of `fsctx.agent.engines.vllm.serve` with a model that is none, run by `Computing` as that is.

The name of the model's folder tells what it does; a question's first token, what happens to that.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

from fsctx.agent.engines.vllm.messages import Answer, Job, Loaded, Question, Read
from fsctx.agent.engines.vllm.serve import main
from fsctx.errors import EngineError, Misconfigured

REFUSE, DIE, BREAK, CHILD = 1, 2, 3, 4


class Double:
    loaded = Loaded(device="cpu", dtype="float32", batch_tokens=1, window=9, vocabulary=9, block_tokens=4)

    def __init__(self, job: Job) -> None:
        match job.files.name:
            case "hangs":
                threading.Event().wait()
            case "dies":
                sys.exit(3)
            case "none":
                raise Misconfigured("not a model")

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        return [self._answer(question) for question in questions]

    def _answer(self, question: Question) -> Answer:
        assert isinstance(question, Read)
        match question.ids[0]:
            case 1:
                raise EngineError("refused")
            case 2:
                os.kill(os.getpid(), signal.SIGKILL)
            case 3:
                raise RuntimeError("a device-side assert")
            case 4:
                return (subprocess.Popen(["sleep", "1000"]).pid,)
        return tuple(-float(token) for token in question.tokens)


if __name__ == "__main__":
    main(Double)
