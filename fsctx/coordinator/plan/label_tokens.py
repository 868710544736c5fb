"""Label words that scoring by tokens could not tell apart."""

from collections.abc import Iterable
from itertools import permutations
from typing import Any

from fsctx.cache.origin import origin_of
from fsctx.coordinator.plan.contexts import Model
from fsctx.errors import InputError
from fsctx.protocol.manifest import ADAPTER
from fsctx.templates.model import Template

_TOKENIZER = "tokenizer.json"


def check_label_tokens(models: Iterable[Model], templates: Iterable[Template]) -> None:
    """Check every template's label words under every model whose tokenizer can be read here.

    Raises:
        InputError: the tokens of one label are the beginning of another's, which could then never win.
    """
    for model in models:
        tokenizer = _tokenizer(model)
        for template in templates if tokenizer else ():
            _check(tokenizer, model, template)


def _tokenizer(model: Model) -> Any:
    """Return the tokenizer of a model folder; None where it has none, or the package `tokenizers` is not installed.

    An adapter's own goes before its model's.
    """
    files = {file.path: file for file in model.context.files}
    file = files.get(f"{ADAPTER}/{_TOKENIZER}") or files.get(_TOKENIZER)
    if file is None:
        return None
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    path = origin_of(model.context, file)
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the package raises a bare Exception
        seen = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"{path} is no tokenizer ({seen}): fetch the model again") from None


def _check(tokenizer: Any, model: Model, template: Template) -> None:
    tokens = {label.name: tokenizer.encode(label.words, add_special_tokens=False).ids for label in template.labels}
    for (one, ids), (other, longer) in permutations(tokens.items(), 2):
        if ids == longer[: len(ids)]:
            raise InputError(
                f"template {template.name!r} with model {model.name}: the words of label {one} are, in tokens, "
                f"the beginning of those of {other}, which could never win: choose other words for one of them"
            )
