"""What a history is made of: drawn from its seed, and made smaller to explain a failure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

from fsctx.store import PublishForm
from simulation.sharedfs import CALM, Weather
from simulation.world import Shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a history begins, and what befalls it. The times and victims follow from the seed."""

    seed: int
    shape: Shape
    n_hosts: int
    n_agents: int
    rows_per_s: float
    save_s: float
    weather: Weather
    publish: PublishForm = "symlink"
    compacts: bool = False
    n_kills: int = 0
    n_freezes: int = 0
    n_signals: int = 0
    n_newcomers: int = 0
    n_readers: int = 0
    n_retries: int = 0
    """Times that a person runs `retry`; some of them are killed in the middle."""
    n_junk: int = 0
    """Saved partials that are torn, or of another unit, run or slice."""
    has_stop: bool = False
    has_damage: bool = False
    """Whether a shard of claims cannot be read for a while."""
    has_planted_link: bool = False
    """Whether somebody makes a result's name point out of its folder."""
    is_full_for_a_while: bool = False
    has_poison: bool = False
    """Whether the last claim kills every process that computes it."""

    @property
    def is_calm(self) -> bool:
        """Whether nothing goes wrong: agents may be told to leave, that is all."""
        faults = (self.n_kills, self.n_freezes, self.n_retries, self.n_junk)
        states = (self.has_damage, self.has_planted_link, self.is_full_for_a_while, self.has_poison)
        return self.weather.is_reliable and not self.weather.content_lag_s and not any(faults) and not any(states)

    @property
    def is_undisturbed(self) -> bool:
        """Whether, besides, nobody is told to leave."""
        return self.is_calm and not self.n_signals and not self.has_stop


def draw(seed: int) -> Plan:
    """Draw the plan of a history."""
    chance = Random(f"plan {seed}")
    plan = Plan(
        seed=seed,
        shape=Shape(
            n_rows=chance.choice([3, 5, 8]), unit_rows=chance.choice([1, 2, 3]), n_tasks=chance.choice([1, 1, 2])
        ),
        n_hosts=chance.choice([1, 2, 3]),
        n_agents=chance.choice([1, 2, 3, 4]),
        rows_per_s=chance.choice([0.02, 0.05, 0.2, 1.0]),
        save_s=chance.choice([5.0, 20.0, 1000.0]),
        weather=Weather(latency_s=chance.choice([0.001, 0.01, 0.3])),
        n_signals=chance.choice([0, 0, 1, 2]),
        n_newcomers=chance.choice([0, 1, 2]),
        n_readers=chance.choice([0, 1, 1, 2]),
        has_stop=chance.random() < 0.1,
        compacts=chance.random() < 0.4,
        publish="link" if chance.random() < 0.2 else "symlink",
    )
    plan = plan if chance.random() < 0.15 else _with_faults(plan, chance)
    return _with_sweep(plan, Random(f"sweep {seed}"))


def _with_sweep(plan: Plan, chance: Random) -> Plan:
    """Make some runs sweeps that stop early."""
    if chance.random() >= 0.15:
        return plan
    shape = Shape(
        n_rows=chance.choice([5, 8]),
        unit_rows=chance.choice([1, 2]),
        n_tasks=chance.choice([2, 3]),
        has_sweep=True,
        has_budget=chance.random() < 0.5,
    )
    return replace(plan, shape=shape)


def _with_faults(plan: Plan, chance: Random) -> Plan:
    storm = chance.choice([0.0, 0.0, 0.01, 0.03, 0.08])
    return replace(
        plan,
        weather=replace(
            plan.weather,
            error=storm * chance.random(),
            lost_reply=storm * chance.random(),
            repeated=storm * chance.random(),
            late=storm * chance.random(),
            hang=chance.choice([0.0, 0.0, 0.003]),
            content_lag_s=chance.choice([0.0, 0.0, 3.0]),
            is_link_exclusive=plan.publish == "link" or chance.random() < 0.5,
        ),
        n_kills=chance.choice([0, 0, 1, 2, 3]),
        n_freezes=chance.choice([0, 0, 1, 2]),
        n_retries=chance.choice([0, 0, 1, 3]),
        n_junk=chance.choice([0, 0, 0, 3, 8]),
        has_damage=chance.random() < 0.15,
        has_planted_link=chance.random() < 0.05,
        is_full_for_a_while=chance.random() < 0.1,
        has_poison=chance.random() < 0.05,
    )


def smaller(plan: Plan) -> Iterator[Plan]:
    """Yield plans with one thing less, the greatest simplifications first."""
    for name in ("n_kills", "n_freezes", "n_signals", "n_newcomers", "n_readers", "n_retries", "n_junk"):
        yield from (replace(plan, **{name: less}) for less in _less(getattr(plan, name), least=0))
    for name in ("compacts", "has_stop", "has_damage", "has_planted_link", "is_full_for_a_while", "has_poison"):
        if getattr(plan, name):
            yield replace(plan, **{name: False})
    for name in ("error", "lost_reply", "repeated", "late", "hang", "content_lag_s", "is_link_exclusive"):
        if getattr(plan.weather, name) != getattr(CALM, name):
            yield replace(plan, weather=replace(plan.weather, **{name: getattr(CALM, name)}))
    if plan.publish != "symlink":
        yield replace(plan, publish="symlink")
    for name in ("n_hosts", "n_agents"):
        yield from (replace(plan, **{name: less}) for less in _less(getattr(plan, name), least=1))
    yield from (replace(plan, shape=shape) for shape in _smaller_shapes(plan.shape))


def _less(number: int, *, least: int) -> list[int]:
    """Return what to try instead of a number: the least, then one less."""
    return sorted({least, number - 1}) if number > least else []


def _smaller_shapes(shape: Shape) -> Iterator[Shape]:
    for name in ("has_sweep", "has_budget"):
        if getattr(shape, name):
            yield replace(shape, **{name: False})
    if shape.n_tasks > 1:
        yield replace(shape, n_tasks=1)
    for n_rows in (1, 3, 5):
        if n_rows < shape.n_rows:
            yield replace(shape, n_rows=n_rows)
    if shape.unit_rows > 1:
        yield replace(shape, unit_rows=1)
