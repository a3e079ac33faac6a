"""The compare-and-set and the gates around it are load-bearing: each one, taken out, lets something through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import cpstore
from cpstore import Binding, errors
from cpstore.lineage.request import Terms
from cpstore.rules import revisions
from cpstore.streams import act

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def two_stores_race(path: Path) -> None:
    """Two processes' worth of stores: the second commits against a head it has not seen move."""
    with cpstore.open(path) as one, cpstore.open(path) as two:
        mine, theirs = one.lineage("a"), two.lineage("a")
        mine.commit({"n": 1}, step=1)
        theirs.head()
        theirs.commit({"n": 2}, step=1)
        with pytest.raises(errors.RevisionConflictError):
            mine.commit({"n": 3}, step=1)
        assert theirs.load() == {"n": 2}
        assert two.verify().good


def a_handle_that_has_not_looked_is_refused(path: Path) -> None:
    with cpstore.open(path) as store:
        store.lineage("a").commit({"n": 1}, step=1)
        with pytest.raises(errors.RevisionConflictError):
            store.lineage("a").commit({"n": 2}, step=1)


def a_falling_step_is_refused(path: Path) -> None:
    with cpstore.open(path) as store:
        task = store.lineage("a")
        task.commit({"n": 1}, step=5)
        with pytest.raises(errors.InvalidStateError):
            task.commit({"n": 1}, step=4)


def a_changed_definition_is_refused(path: Path) -> None:
    with cpstore.open(path) as store:
        task = store.lineage("a")
        task.commit({}, step=1, define=[Binding("timeout", "request timeout", "unit: milliseconds")])
        with pytest.raises(errors.SemanticDriftError):
            task.commit({}, step=2, define=[Binding("timeout", "request timeout", "unit: seconds")])


LAWS = [
    (two_stores_race, act._Act, "_moved", lambda *_: False),
    (a_handle_that_has_not_looked_is_refused, revisions, "check", lambda *_, **__: None),
    (a_falling_step_is_refused, revisions, "check_step", lambda *_: None),
    (a_changed_definition_is_refused, Terms, "advance", lambda *_: None),
]


@pytest.mark.parametrize("law", [law for law, *_ in LAWS], ids=lambda law: law.__name__)
def test_the_law_holds(law: Callable[[Path], None], tmp_path: Path) -> None:
    law(tmp_path / "a.db")


@pytest.mark.parametrize(("law", "place", "name", "mutant"), LAWS, ids=lambda value: getattr(value, "__name__", ""))
def test_without_the_gate_the_law_is_broken(
    law: Callable[[Path], None],
    place: object,
    name: str,
    mutant: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(place, name, mutant)

    with pytest.raises((pytest.fail.Exception, AssertionError, errors.CheckpointStoreError)):
        law(tmp_path / "a.db")
