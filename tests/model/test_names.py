"""What may be a name."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpstore.errors import InvalidStateError
from cpstore.model.names import check_name


@pytest.mark.parametrize("name", ["a", "invoice-42/worker-1", "../x", "a" * 255, "задача 7", "e\u0301", "🙂"])
def test_a_name_comes_back_unchanged(name: str) -> None:
    assert check_name(name, "lineage id") == name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "must not be empty"),
        ("a" * 256, "256 characters, the limit is 255"),
        (" a", "begins or ends with a blank"),
        ("a\u3000", "begins or ends with a blank"),
        ("a\x00b", r"control character \(U\+0000\) at position 1"),
        ("a\n", "control character"),
        ("a\u202eb", "format character"),
        ("a\u2028b", "line separator"),
        ("a\ud800", "lone surrogate"),
        (7, "is text, not int"),
        (None, "is text, not NoneType"),
    ],
)
def test_another_name_is_refused_with_what_it_is_for_and_why(name: str, said: str) -> None:
    with pytest.raises(InvalidStateError, match=said) as caught:
        check_name(name, "lineage id")

    assert "lineage id" in str(caught.value)


@given(st.text(st.characters(), max_size=300))
def test_no_accepted_name_has_a_character_that_cannot_be_stored_or_seen(name: str) -> None:
    try:
        check_name(name, "actor")
    except InvalidStateError:
        return

    assert 1 <= len(name) <= 255
    assert name == name.strip()
    assert not {unicodedata.category(character) for character in name} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
