"""When an agent takes its next unit: before this one ends, and no sooner than it must."""

from fsctx.agent.engines.fake import FakeOptions
from simulation.pilots import start_agent
from simulation.sharedfs import CALM
from simulation.world import Shape, Simulation


def rows_done_at_each_lease(*, unit_rows: int, rows_per_s: float) -> list[int]:
    """Let one agent do two units alone; return how many rows were computed when it took each."""
    engine = FakeOptions(rows_per_s=rows_per_s, batch_tokens=2)  # a row a batch
    simulation = Simulation(7, Shape(n_rows=2 * unit_rows, unit_rows=unit_rows), engine, save_s=1000.0)
    found: list[int] = []

    def on_change(what: str, path: str) -> None:
        if what == "create" and path.startswith("/run/leases/"):
            found.append(len(simulation.computed))

    simulation.server.on_change = on_change
    agent = start_agent(simulation, simulation.add_host(CALM))
    try:
        simulation.clockwork.run(lambda: agent in simulation.exits, deadline_s=10_000.0)
    finally:
        simulation.clockwork.close()
    assert len(simulation.computed) == 2 * unit_rows
    return found


def test_of_a_long_unit_the_next_one_is_taken_when_fifteen_seconds_are_left() -> None:
    assert rows_done_at_each_lease(unit_rows=100, rows_per_s=1.0) == [0, 85]


def test_of_a_short_unit_the_next_one_is_taken_as_soon_as_the_speed_is_known() -> None:
    assert rows_done_at_each_lease(unit_rows=4, rows_per_s=1.0) == [0, 1]
