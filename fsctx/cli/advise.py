"""`fsctx advise`."""

from pathlib import Path
from typing import Any

import click

from fsctx.cli.numbers import Number


@click.command()
@click.option("--model", "ref", required=True, help="Model folder, config.json, .gguf file or hub name.")
@click.option("--device", "device_name", required=True, help="The device's model, such as A10 or H100.")
@click.option("--count", type=click.IntRange(1, 64), default=1, show_default=True, help="Devices in the node.")
@click.option(
    "--objective",
    type=click.Choice(["throughput", "latency"]),
    default="throughput",
    show_default=True,
    help="What to make the best of.",
)
@click.option("--sla-ms", type=Number(min=0), help="A batch may take so many milliseconds at most.")
@click.option("--prefix-tokens", type=click.IntRange(min=0), default=150, show_default=True, help="Constant tokens.")
@click.option(
    "--claim-tokens",
    type=click.IntRange(min=1),
    default=40,
    show_default=True,
    help="Tokens of a claim and its labels.",
)
@click.option(
    "--measured",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="What fsctx tune found on one such device.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def advise(ref: str, device_name: str, **asked: Any) -> None:
    """Say how to spread a model over the devices of a node: replicas, tensor and pipeline parallelism, batch.

    Reckoned from the model's dimensions and the device's data sheet, or from what `fsctx tune` measured.
    """
    import json

    from fsctx.coordinator.advise import words
    from fsctx.coordinator.advise.advise import Node
    from fsctx.coordinator.advise.advise import advise as find
    from fsctx.coordinator.advise.cost import Work, rates_of
    from fsctx.coordinator.advise.devices import find_device, read_devices
    from fsctx.coordinator.advise.models import find_shape, read_measured
    from fsctx.coordinator.plan.hub import fetch_config

    shape = find_shape(ref, fetch=fetch_config)
    device = find_device(device_name, read_devices())
    measured = None if asked["measured"] is None else read_measured(asked["measured"])
    node = Node(device=device, count=asked["count"], rates=rates_of(device, measured))
    advice = find(
        shape,
        node,
        objective=asked["objective"],
        work=Work(prefix=asked["prefix_tokens"], own=asked["claim_tokens"]),
        sla_s=None if asked["sla_ms"] is None else asked["sla_ms"] / 1e3,
    )
    if asked["as_json"]:
        click.echo(json.dumps(words.to_json(advice, shape, node), indent=1))
        return
    for line in words.table(advice, shape, node):
        click.echo(line)
