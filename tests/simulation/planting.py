"""What somebody, or a disk, puts into a run folder that no agent wrote."""

from simulation.sharedfs import FILE, LINK, Entry
from simulation.verdicts import wrong
from simulation.world import ROOT, Simulation

ELSEWHERE = f"{ROOT}/elsewhere"


def plant_junk(simulation: Simulation) -> None:
    """Put a file among the partials that is torn, of another unit, of another run, or of rows out of the slice."""
    chance, shape, n_units = simulation.chance, simulation.shape, simulation.manifest.geometry.n_units
    unit = chance.randrange(n_units)
    content = chance.choice(
        [
            wrong(shape, unit)[: chance.choice([0, 4, 300])],
            wrong(shape, unit, marked=unit + 1),
            wrong(shape, unit, run="another run"),
            wrong(shape, unit, shift=shape.unit_rows),
        ]
    )
    folder = simulation.server.folders.get(f"{ROOT}/partial/000000", {})  # compacted: put nowhere
    folder.setdefault(f"{unit:08d}.{chance.randrange(4)}.parquet", Entry(FILE, content, simulation.clockwork.now_s))


def plant_link(simulation: Simulation) -> int | None:
    """Make a result's name point to a file elsewhere, if it is not published; return the unit."""
    unit = simulation.chance.randrange(simulation.manifest.geometry.n_units)
    folder, name = simulation.server.folders.get(f"{ROOT}/results/000000"), f"{unit:08d}"
    now_s = simulation.clockwork.now_s
    if folder is None or name in folder:
        return None
    elsewhere = simulation.server.folders.setdefault(ELSEWHERE, {})
    elsewhere[f"{name}.0.parquet"] = Entry(FILE, wrong(simulation.shape, unit), now_s)
    target = f"../../elsewhere/{name}.0.parquet".encode()
    by_record = Entry(FILE, b"-> " + target + b"\n", now_s)
    folder[name] = by_record if simulation.publish == "link" else Entry(LINK, target, now_s)
    return unit


def damage_shard(simulation: Simulation, *, for_s: float) -> None:
    """Cut a shard of claims short for a while. Runs in a process of its own."""
    shards = simulation.server.folders[f"{ROOT}/units"]
    name = simulation.chance.choice(sorted(shards))
    whole = shards[name]
    simulation.damaged_shards.add(int(name.removeprefix("shard-").removesuffix(".parquet")))
    shards[name] = Entry(FILE, whole.content[: len(whole.content) // 2], simulation.clockwork.now_s)
    simulation.clockwork.pause(for_s)
    shards[name] = whole
