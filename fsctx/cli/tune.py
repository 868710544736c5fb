"""`fsctx tune`."""

import os
from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--engine", default="auto", show_default=True, help="auto, hf or vllm.")
@click.option("--device", default="auto", show_default=True, help="auto, cpu, cuda or cuda:N.")
@click.option("--dtype", default=None, help="float32, bfloat16 or float16; by the device if not given.")
@click.option("--cache", type=click.Path(path_type=Path), default=None, help="The node's cache; else $FSCTX_CACHE.")
def tune(run: Path, engine: str, device: str, dtype: str | None, cache: Path | None) -> None:
    """Measure RUN's first model on this device with some claims of RUN, for `fsctx advise --measured`.

    On a CPU it also says whether bfloat16 is worth it. Prints one JSON document. Takes no work from RUN
    and writes nothing into it.
    """
    from fsctx.agent.options import AgentOptions
    from fsctx.agent.tune import tune as measure
    from fsctx.cache import default_root
    from fsctx.protocol import codec

    options = AgentOptions(engine=engine, device=device, dtype=dtype, cache=default_root(os.environ, cache))
    measured = measure(run, options, say=lambda line: click.echo(line, err=True))
    click.echo(codec.encode_pretty(measured).decode(), nl=False)
