"""What `--engine vllm:option=value,…` can ask for. Imports nothing of vLLM."""

from dataclasses import dataclass, fields

from fsctx.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmOptions:
    """How vLLM is started."""

    start_s: float = 1800.0
    """A start that takes longer is given up, and the agent leaves for another node."""
    compile: int = 0
    """1: compile and capture the model. It starts minutes later and generates faster."""
    kv_gb: float = 0.0
    """Memory for keys and values, in GB; 0: what a GPU has free, or a tenth of a CPU's."""


def parse_vllm_options(text: str) -> VllmOptions:
    """Read `name=value,name=value`.

    Raises:
        InputError: an unknown name, or a value that is no number or out of range.
    """
    known = {field.name: int if isinstance(field.default, int) else float for field in fields(VllmOptions)}
    values: dict[str, float] = {}
    for item in filter(None, text.split(",")):
        name, _, value = item.partition("=")
        if name not in known:
            raise InputError(f"the vllm engine has no option {name!r}: use {', '.join(known)}")
        try:
            values[name] = known[name](value)
        except ValueError:
            raise InputError(f"the vllm engine's option {name}={value!r} is not {known[name].__name__}") from None
        if not values[name] >= 0:
            raise InputError(f"the vllm engine's option {name}={value!r}: use a number that is not negative")
    return VllmOptions(**values)  # type: ignore[arg-type]  # each value has its field's own type
