"""The verdict on the SQLite that is loaded, not on the one that was asked for."""

from __future__ import annotations

import sqlite3

import pytest

from cpstore.backends import engine


@pytest.mark.parametrize(
    ("version", "sound", "accepted"),
    [
        ((3, 36, 0), False, False),
        ((3, 37, 0), False, True),
        ((3, 40, 1), False, True),
        ((3, 44, 5), False, True),
        ((3, 44, 6), True, True),
        ((3, 45, 0), False, True),
        ((3, 50, 6), False, True),
        ((3, 50, 7), True, True),
        ((3, 51, 2), False, True),
        ((3, 51, 3), True, True),
        ((3, 52, 0), True, True),
        ((4, 0, 0), True, True),
    ],
)
def test_each_version_has_its_verdict(version, sound, accepted):
    verdict = engine.judge(version)

    assert (sound, accepted) == (verdict.sound, verdict.accepted)
    assert ".".join(map(str, version)) in verdict.text


def test_the_library_in_this_process_is_the_one_that_is_judged():
    db = sqlite3.connect(":memory:")
    (version,) = db.execute("SELECT sqlite_version()").fetchone()
    db.close()

    assert version == engine.loaded().version
