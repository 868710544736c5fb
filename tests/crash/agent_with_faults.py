"""An agent that is killed or frozen at a point: `agent_with_faults.py POINT RUN ENGINE [SAVE_S]`; see `faults`."""

import os
import sys
from pathlib import Path

import click
from crash.faults import FaultySystem, parse_fault

from fsctx.agent.options import AgentOptions
from fsctx.agent.start import run_agent
from fsctx.cache import default_root


def main(point: str, run: str, engine: str, save_s: str = "30") -> int:
    """Run the agent."""
    options = AgentOptions(engine=engine, cache=default_root(os.environ, None), save_s=float(save_s))
    system = FaultySystem(parse_fault(point))
    return run_agent(Path(run), options, say=lambda line: click.echo(line, err=True), system=system)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
