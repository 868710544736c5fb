"""Reading requests of OpenAI's batch files: each is a chat of its own, whose last message is the claim."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fsctx.coordinator.plan.inputs import Source
from fsctx.coordinator.plan.read_json import JsonReader
from fsctx.errors import InputError

REQUEST_ID, BODY = "custom_id", "body"
CLAIM, MESSAGES = "claim", "messages"
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


def is_openai(reader: JsonReader) -> bool:
    """Whether the objects of a file are such requests."""
    return {REQUEST_ID, BODY} <= set(reader.columns) <= {REQUEST_ID, BODY, "method", "url"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAiReader:
    """See `Reader`. Columns: the request's id, its last message as the claim, and the chat as JSON."""

    inner: JsonReader
    sample: tuple[str, ...] = ()

    @property
    def source(self) -> Source:
        """The file."""
        return self.inner.source

    @property
    def n_rows_guess(self) -> int:
        """Exact: see `JsonReader`."""
        return self.inner.n_rows_guess

    @property
    def columns(self) -> dict[str, pa.DataType]:
        """What requests are made into."""
        return dict.fromkeys((REQUEST_ID, CLAIM, MESSAGES), pa.string())

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not taken from the requests."""
        told = "the chats are column messages (--template messages --method generate sends them as they are)"
        unread = "of their bodies nothing else is read: --model and the template's [generation] say the rest"
        return (f"{self.source}: requests of an OpenAI batch; {told}; {unread}",)

    def batches(self, columns: Sequence[str], *, raw: str | None = None) -> Iterator[pa.RecordBatch]:
        """See `Reader.batches`."""
        for batch in self.inner.batches((REQUEST_ID, BODY), raw=raw):
            ids = batch.column(0)
            chats = [
                self._chat(one, body) for one, body in zip(ids.to_pylist(), batch.column(1).to_pylist(), strict=True)
            ]
            made: dict[str, pa.Array[Any]] = {
                REQUEST_ID: ids,
                CLAIM: pa.array([chat[-1]["content"] for chat in chats], pa.string()),
                MESSAGES: pa.array([json.dumps(chat, ensure_ascii=False) for chat in chats], pa.string()),
            }
            yield pa.RecordBatch.from_arrays([made[name] for name in columns], names=list(columns))

    def _chat(self, request: str | None, body: str | None) -> list[dict[str, str]]:
        try:
            return _messages(json.loads(body or "null"))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self.source}: request {request}: {error}") from None


def _messages(body: Any) -> list[dict[str, str]]:
    """Return the messages of a request's body, with plain texts.

    Raises:
        ValueError: it has none, or some that are no texts of a known role.
    """
    messages = body.get("messages") if isinstance(body, dict) else None
    if not isinstance(messages, list) or not messages:
        raise ValueError("its body has no messages: only chat completions can be planned")
    chat = [{"role": _role(message), "content": _content(message)} for message in messages]
    if chat[-1]["role"] != "user":
        raise ValueError(f"its last message is the {chat[-1]['role']}'s, and must be the user's")
    return chat


def _role(message: Any) -> str:
    role = message.get("role") if isinstance(message, dict) else None
    if role not in _ROLES:
        raise ValueError(f"a message has the role {role!r}: it can be {', '.join(_ROLES)}")
    return _ROLES[role]


def _content(message: dict[str, Any]) -> str:
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
    texts = [part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("a message has content that is no text")
    return "".join(map(str, texts))
