"""No blind commit, and steps that do not fall: properties beside the table in table.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpstore.errors import InvalidStateError, RevisionConflictError
from cpstore.rules import revisions

NUMBERS = st.integers(0, 4)


@given(st.none() | NUMBERS, st.none() | NUMBERS, NUMBERS)
def test_an_act_passes_only_if_it_knows_the_head(expected: int | None, seen: int | None, head: int) -> None:
    known = expected if expected is not None else seen
    if known == head or (known is None and head == 0):
        revisions.check("a", expected=expected, seen=seen, head=head)
    else:
        with pytest.raises(RevisionConflictError) as caught:
            revisions.check("a", expected=expected, seen=seen, head=head)
        assert (caught.value.expected, caught.value.head) == (known, head)


@given(NUMBERS, st.none() | NUMBERS)
def test_a_step_passes_only_if_it_does_not_fall(step: int, head: int | None) -> None:
    if head is None or step >= head:
        revisions.check_step("a", step, head)
    else:
        with pytest.raises(InvalidStateError, match="may repeat or rise"):
            revisions.check_step("a", step, head)
