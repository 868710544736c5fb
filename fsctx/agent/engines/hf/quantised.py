"""Which library a quantised checkpoint needs. transformers knows how to use it; here is only what to install."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

_LIBRARIES = {
    "aqlm": {"aqlm": "aqlm"},
    "auto-round": {"auto_round": "auto-round"},
    "awq": {"gptqmodel": "gptqmodel"},
    "bitsandbytes": {"bitsandbytes": "bitsandbytes"},
    "compressed-tensors": {"compressed_tensors": "compressed-tensors"},
    "gptq": {"optimum": "optimum", "gptqmodel": "gptqmodel"},
    "hqq": {"hqq": "hqq"},
    "quanto": {"optimum.quanto": "optimum-quanto"},
    "torchao": {"torchao": "torchao"},
}
"""Method → modules to import, and the packages that have them."""


def missing_libraries(config: Mapping[str, Any]) -> list[str]:
    """Return the packages that a model's configuration asks for and that are not installed."""
    quantised = config.get("quantization_config")
    method = quantised.get("quant_method") if isinstance(quantised, dict) else None
    return [package for module, package in _LIBRARIES.get(str(method), {}).items() if not _is_installed(module)]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the package that the module would be in
        return False
