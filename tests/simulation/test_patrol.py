"""Whether an orphan waits for the end of the run."""

from fsctx.agent.engines.fake import FakeOptions
from simulation.pilots import start_agent
from simulation.sharedfs import CALM
from simulation.world import Shape, Simulation

N_UNITS = 60


def test_a_killed_agents_unit_is_taken_over_while_units_are_free() -> None:
    engine = FakeOptions(rows_per_s=1.0, batch_tokens=2)  # a row a batch
    simulation = Simulation(7, Shape(n_rows=20 * N_UNITS, unit_rows=20), engine)
    leased: list[str] = []

    def on_change(what: str, path: str) -> None:
        if what == "create" and path.startswith("/run/leases/"):
            leased.append(path.rpartition("/")[2])

    simulation.server.on_change = on_change
    victim, other = (start_agent(simulation, simulation.add_host(CALM)) for _ in range(2))
    killed = simulation.agents[victim]
    simulation.start(simulation.hosts[0], "fate", lambda _: simulation.clockwork.kill(killed), after_s=50.0)
    try:
        simulation.clockwork.run(lambda: other in simulation.exits, deadline_s=10_000.0)
    finally:
        simulation.clockwork.close()
    again = [name for name in leased if name.endswith(".1")]
    assert again, "nothing was taken over"
    assert len([name for name in leased[: leased.index(again[-1])] if name.endswith(".0")]) < N_UNITS / 2
