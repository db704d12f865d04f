from __future__ import annotations

import pytest

from foldline.text.cron import Cron


@pytest.mark.parametrize(
    ("text", "minutes", "weekdays"),
    [
        ("*/20 * * * *", {0, 20, 40}, set(range(7))),
        ("5 * * * 0", {5}, {0}),
        ("5 * * * 7", {5}, {0}),
        ("5 * * * mon-fri", {5}, {1, 2, 3, 4, 5}),
        ("5 * * * fri-sun", {5}, {5, 6, 0}),
        ("5 * * * 5-7", {5}, {5, 6, 0}),
        ("0-10/5,59 * * * SAT,sun", {0, 5, 10, 59}, {6, 0}),
        ("0 0 29 2 *", {0}, set(range(7))),
    ],
)
def test_fields_are_read_as_crontab_reads_them(text: str, minutes: set[int], weekdays: set[int]) -> None:
    found = Cron.read(text)
    assert (set(found.minutes), set(found.weekdays)) == (minutes, weekdays)


def test_a_day_or_a_weekday_is_enough_only_where_both_are_given() -> None:
    assert Cron.read("0 7 1 * mon").either
    assert not Cron.read("0 7 1 * *").either
    assert not Cron.read("0 7 */2 * mon").either
