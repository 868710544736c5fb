"""Which log-probabilities make up the labels' scores, in as few prompts as will do. Pure."""

from collections.abc import Sequence

from fsctx.agent.engines.vllm.messages import Answer, Follow, Ids, Question, Read

Nodes = dict[Ids, Ids]
"""What was read of a label → the tokens that come next in any label."""


def questions(context: Ids, labels: Sequence[Ids]) -> list[Question]:
    """Return what must be asked to score labels behind a context.

    Where labels part early, as single tokens do, the tokens that come next; else how each label follows.
    """
    tree = _nodes(labels)
    if _is_read(tree, labels):
        return [Read(ids=(*context, *path), tokens=tokens) for path, tokens in tree.items()]
    return [Follow(context=context, tokens=label) for label in labels]


def scores(labels: Sequence[Ids], answers: Sequence[Answer]) -> tuple[float, ...]:
    """Return each label's log-probability, from the answers to `questions`."""
    tree = _nodes(labels)
    if not _is_read(tree, labels):
        return tuple(sum(answer) for answer in answers)
    known = {path: dict(zip(tree[path], answer, strict=True)) for path, answer in zip(tree, answers, strict=True)}
    return tuple(sum(known[label[:n]][token] for n, token in enumerate(label)) for label in labels)


def _is_read(tree: Nodes, labels: Sequence[Ids]) -> bool:
    return len(tree) <= len(labels)


def _nodes(labels: Sequence[Ids]) -> Nodes:
    found: dict[Ids, dict[int, None]] = {}
    for label in labels:
        for n, token in enumerate(label):
            found.setdefault(label[:n], {})[token] = None
    return {path: tuple(tokens) for path, tokens in found.items()}
