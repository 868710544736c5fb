from hypothesis import given
from hypothesis import strategies as st

from fsctx.agent.careful import LONE_DEATHS, take_care
from fsctx.protocol.attempts import Attempt


def attempt(generation: int, *rows: int) -> Attempt:
    return Attempt(generation=generation, rows=rows)


def test_without_a_trace_the_rows_are_halved() -> None:
    care = take_care(range(10, 15), [])
    assert care.groups == ((10, 11, 12), (13, 14))
    assert care.given_up == ()


def test_the_rows_that_the_last_holder_died_over_are_halved_and_come_first() -> None:
    care = take_care(range(10, 18), [attempt(5, 10, 11, 12, 13, 14), attempt(6, 14, 15, 16, 17)])
    assert care.groups == ((14, 15), (16, 17), (10, 11, 12, 13))


def test_rows_that_were_finished_since_are_no_suspects() -> None:
    care = take_care([12, 13], [attempt(5, 12, 13), attempt(6, 10, 11)])
    assert care.groups == ((12,), (13,))


def test_a_row_is_given_up_only_when_agents_died_over_it_alone() -> None:
    once = take_care([10, 11], [attempt(5, 10)])
    assert once.given_up == ()
    assert once.groups == ((10,), (11,))
    twice = take_care([10, 11], [attempt(5, 10), attempt(6, 10)])
    assert twice.given_up == (10,)
    assert twice.groups == ((11,),)


@given(st.integers(1, 200), st.data())
def test_a_row_that_kills_is_found_in_a_logarithmic_number_of_deaths(n_rows: int, data: st.DataObject) -> None:
    poison = data.draw(st.integers(0, n_rows - 1))
    todo, attempts, deaths = list(range(n_rows)), list[Attempt](), 0
    while todo:
        care = take_care(todo, attempts)
        todo = [row for row in todo if row not in care.given_up]
        for group in care.groups:
            attempts.append(attempt(deaths, *group))
            if poison in group:
                deaths += 1
                break
            todo = [row for row in todo if row not in group]
        if not care.groups:
            break
    assert care.given_up == (poison,)
    assert deaths <= n_rows.bit_length() + 1 + LONE_DEATHS
