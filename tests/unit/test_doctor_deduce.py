"""What follows from what a doctor found."""

import dataclasses

import pytest

from fsctx.coordinator.doctor import deduce, words
from fsctx.coordinator.doctor.findings import Finding, Level, Report, Verdict, outweighs, to_facts
from fsctx.coordinator.doctor.race import Form, Raced, Trial, judge
from fsctx.store.mounts import Mount

SOUND = {form: Trial(form=form, n_racers=4, n_names=100) for form in Form}
SIMPLE = dict.fromkeys(Form, True)


def report(*findings: Finding, is_shared: bool = True, peer: str | None = None) -> Report:
    return Report(
        folder="/d",
        host="h",
        peer=peer,
        kind="nfs4",
        is_shared=is_shared,
        findings=findings,
        has_symlinks=True,
        publish="symlink",
        ttl_s=60.0,
    )


def finding(level: Level, why: str = "") -> Finding:
    return Finding(check="c", level=level, seen="seen", why=why)


def raced(me: str, *won: int, tried: int = 4) -> Raced:
    return Raced(me=me, tried=tried, won=won)


def test_one_winner_of_each_name_is_sound() -> None:
    trial = judge(Form.CREATE, [raced("a", 0, 2), raced("b", 1, 3)], [["a", "b", "a", "b"]])
    assert trial.is_sound
    assert (trial.doubles, trial.misled, trial.orphans, trial.largest_share) == (0, 0, 0, 0.5)


def test_a_name_with_two_winners_is_not_sound() -> None:
    trial = judge(Form.LINK, [raced("a", 0, 1), raced("b", 1, 2, 3)], [["a", "b", "b", "b"]])
    assert trial.doubles == 1
    assert not trial.is_sound


def test_a_winner_who_does_not_own_the_name_is_not_sound() -> None:
    trial = judge(Form.SYMLINK, [raced("a", 0), raced("b")], [["b"]])
    assert (trial.misled, trial.is_sound) == (1, False)


def test_a_winner_who_was_not_told_is_sound() -> None:
    """The reply was lost, and the call was repeated by the transport."""
    assert judge(Form.CREATE, [raced("a"), raced("b")], [["a"]]).is_sound


def test_two_hosts_that_see_different_owners_are_not_sound() -> None:
    trial = judge(Form.SYMLINK, [raced("a", 0), raced("b")], [["a"], ["b"]])
    assert (trial.differences, trial.is_sound) == (1, False)


def test_a_file_that_one_host_still_sees_empty_is_sound_and_told() -> None:
    trial = judge(Form.CREATE, [raced("a", 0), raced("b")], [["a"], [""]])
    assert (trial.unseen, trial.orphans, trial.is_sound) == (1, 0, True)
    assert "1 look empty to one host for a while" in deduce.raced(trial, by="hosts").seen


def test_names_that_nobody_owns_cost_work_and_are_to_be_minded() -> None:
    trial = judge(Form.CREATE, [raced("a"), raced("b")], [["", "a"]])
    assert deduce.raced(trial, by="hosts").level is Level.MIND


def test_a_form_that_is_not_there_at_all_is_no_fault_if_another_one_is_sound() -> None:
    absent = Trial(form=Form.SYMLINK, n_racers=4, n_names=100, orphans=100, failed=400, error="Operation not permitted")
    assert not absent.is_supported
    assert deduce.raced(absent, by="hosts").level is Level.NOTE
    assert deduce.publish_form(SIMPLE, [SOUND | {Form.SYMLINK: absent}]) == "link"


def test_a_race_that_one_won_alone_is_told() -> None:
    lonely = dataclasses.replace(SOUND[Form.CREATE], largest_share=1.0)
    assert "one won nearly all" in deduce.raced(lonely, by="hosts").seen


@pytest.mark.parametrize(
    ("broken", "form"),
    [((), "symlink"), ((Form.SYMLINK,), "link"), ((Form.LINK,), "symlink"), ((Form.SYMLINK, Form.LINK), None)],
)
def test_results_are_published_by_the_first_form_that_is_sound_in_every_race(
    broken: tuple[Form, ...], form: str | None
) -> None:
    across = {f: dataclasses.replace(t, doubles=int(f in broken)) for f, t in SOUND.items()}
    assert deduce.publish_form(SIMPLE, [SOUND, across]) == form
    assert deduce.publish_form(SIMPLE | dict.fromkeys(broken, False), [SOUND]) == form


def test_two_winners_of_an_exclusive_creation_are_unsafe() -> None:
    seen = deduce.raced(dataclasses.replace(SOUND[Form.CREATE], doubles=3), by="hosts")
    assert seen.level is Level.BAD
    assert report(seen).verdict is Verdict.UNSAFE
    assert words.verdict(report(seen)) == "unsafe: exclusive create: 3 were won by several"


def test_no_way_to_publish_is_unsafe() -> None:
    assert deduce.publication(None).level is Level.BAD
    assert deduce.publication("link").level is Level.MIND
    assert deduce.publication("symlink").level is Level.OK


def test_the_verdict_is_what_the_worst_finding_makes_of_it() -> None:
    seen = [finding(Level.OK), finding(Level.NOTE), finding(Level.MIND, "little room"), finding(Level.BAD, "no fsync")]
    assert words.verdict(report(*seen[:2], peer="p")) == "safe"
    assert words.verdict(report(*seen[:2])) == "safe (as far as one host can tell)"
    assert words.verdict(report(*seen[:2], is_shared=False)) == "safe"
    assert words.verdict(report(*seen[:3], peer="p")) == "safe with little room"
    assert words.verdict(report(*seen)) == "unsafe: no fsync"


def test_an_unsafe_filesystem_gets_no_advice_how_to_plan_there() -> None:
    assert "given up" not in " ".join(words.closing(report(finding(Level.BAD), peer="p")))
    assert "given up after 60 s" in " ".join(words.closing(report(finding(Level.OK), peer="p")))


@pytest.mark.parametrize(
    ("is_shared", "delays_s", "ttl_s"),
    [(False, (), 15), (False, (0.4,), 15), (True, (), 60), (True, (0.1, 2.8), 60), (True, (7.4, 0.1), 80)],
)
def test_the_time_to_live_grows_with_the_delay_of_a_beat(
    is_shared: bool, delays_s: tuple[float, ...], ttl_s: float
) -> None:
    assert deduce.recommended_ttl(is_shared=is_shared, delays_s=delays_s) == ttl_s


def test_mount_options_that_matter_are_told() -> None:
    found = deduce.mounted(Mount(folder="/m", kind="nfs4", options=("rw", "soft", "noac", "vers=4.1", "rsize=1048576")))
    assert [f.level for f in found] == [Level.NOTE, Level.MIND, Level.NOTE, Level.NOTE]
    assert "nfs4, mounted at /m, shared" in found[0].seen
    assert "mount it hard" in found[1].why
    assert found[3].seen == "vers=4.1"


def test_what_two_hosts_found_unsafe_is_not_refuted_by_one() -> None:
    def facts(peer: str | None, level: Level) -> object:
        return to_facts(report(finding(level), peer=peer), date="2026-01-01", version="0")

    unsafe, safe = facts("p", Level.BAD), facts(None, Level.OK)
    assert outweighs(unsafe, safe)  # type: ignore[arg-type]
    assert not outweighs(unsafe, facts("p", Level.OK))  # type: ignore[arg-type]
    assert not outweighs(facts("p", Level.OK), safe)  # type: ignore[arg-type]
    assert not outweighs(facts(None, Level.BAD), safe)  # type: ignore[arg-type]
