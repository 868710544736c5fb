"""Writing rows as the answers of an OpenAI batch."""

import datetime
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa

from fsctx.protocol.manifest import Manifest
from fsctx.protocol.verdicts import Status

_COLUMNS = ["id", "model", "verdict", "text", "status", "error", "input_tokens", "output_tokens"]


class OpenAiWriter:
    """JSON Lines of chat completions: the text that was generated, else the verdict. A row's error is its answer's.

    `finish_reason` is null: why generation ended is not recorded.
    """

    def __init__(self, file: BinaryIO, _schema: pa.Schema, manifest: bytes) -> None:
        planned = msgspec.json.decode(manifest, type=Manifest)
        self._file = file
        self._run = planned.run
        self._created = int(datetime.datetime.fromisoformat(planned.created).timestamp())
        self._n_rows = 0

    def write(self, table: pa.Table) -> None:
        """See `Writer.write`."""
        encoder = msgspec.json.Encoder()
        for row in table.select(_COLUMNS).to_pylist():
            self._file.write(encoder.encode(self._answer(row)) + b"\n")
            self._n_rows += 1

    def close(self) -> None:
        """See `Writer.close`."""

    def _answer(self, row: dict[str, Any]) -> dict[str, Any]:
        name = f"{self._run}-{self._n_rows}"
        is_ok = row["status"] == Status.OK
        return {
            "id": f"batch_req_{name}",
            "custom_id": None if row["id"] is None else str(row["id"]),
            "response": {"status_code": 200, "request_id": name, "body": self._completion(row, name)}
            if is_ok
            else None,
            "error": None if is_ok else {"code": row["status"], "message": row["error"]},
        }

    def _completion(self, row: dict[str, Any], name: str) -> dict[str, Any]:
        content = row["verdict"] if row["text"] is None else row["text"]
        message = {"role": "assistant", "content": content}
        n_in, n_out = row["input_tokens"], row["output_tokens"]
        return {
            "id": f"chatcmpl-{name}",
            "object": "chat.completion",
            "created": self._created,
            "model": row["model"],
            "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": None}],
            "usage": {"prompt_tokens": n_in, "completion_tokens": n_out, "total_tokens": n_in + n_out},
        }
