"""Which library a quantised checkpoint needs. transformers knows how to use it; here is only what to install."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

_LIBRARIES = {
    "aqlm": ("aqlm", "aqlm"),
    "awq": ("gptqmodel", "gptqmodel"),
    "bitsandbytes": ("bitsandbytes", "bitsandbytes"),
    "compressed-tensors": ("compressed_tensors", "compressed-tensors"),
    "gptq": ("gptqmodel", "gptqmodel"),
    "hqq": ("hqq", "hqq"),
    "quanto": ("optimum.quanto", "optimum-quanto"),
    "torchao": ("torchao", "torchao"),
}
"""Method → the module to import, and the package that has it."""


def missing_library(config: Mapping[str, Any]) -> str | None:
    """Return the package that a model's configuration asks for and that is not installed; None if there is none."""
    quantised = config.get("quantization_config")
    method = quantised.get("quant_method") if isinstance(quantised, dict) else None
    module, package = _LIBRARIES.get(str(method), ("json", ""))
    try:
        return package if find_spec(module) is None else None
    except ModuleNotFoundError:  # the package that the module would be in
        return package
