from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpstore.inspect.diff import differences

CASES = {
    "equal": ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}, []),
    "order of keys": ({"a": 1, "b": 2}, {"b": 2, "a": 1}, []),
    "types": ({"a": 1, "b": 1, "c": 1.0}, {"a": True, "b": 1.0, "c": 1.0}, ["changed a", "changed b"]),
    "nan": ({"a": float("nan")}, {"a": float("nan")}, []),
    "negative zero": ({"a": 0.0}, {"a": -0.0}, ["changed a"]),
    "tuple and list": ({"a": (1,)}, {"a": [1]}, ["changed a"]),
    "append": ({"a": [1, 2]}, {"a": [1, 2, 3, 4]}, ["added a/2", "added a/3"]),
    "insert": ({"a": [1, 2, 3]}, {"a": [1, 9, 2, 3]}, ["added a/1"]),
    "remove in front": ({"a": [1, 2, 3]}, {"a": [3]}, ["removed a/0", "removed a/1"]),
    "summary": ({"a": [1, 2, 3, 4]}, {"a": [9, 4]}, ["changed a/0", "removed a/1", "removed a/2"]),
    "inside an item": ({"a": [{"x": 1}, 2]}, {"a": [{"x": 1, "y": 2}, 2]}, ["added a/0/y"]),
    "empty containers": ({"a": []}, {"a": {}}, ["changed a"]),
    "none is a value": ({"a": None}, {}, ["removed a"]),
}


@pytest.mark.parametrize(("old", "new", "expected"), CASES.values(), ids=CASES)
def test_differences_are_named_by_path(old, new, expected):
    assert [f"{kind} {'/'.join(map(str, at))}" for kind, at, _, _ in differences(old, new)] == expected


plain = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "a"]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=20,
)


@given(plain, plain)
def test_no_difference_is_reported_exactly_for_equal_values(old, new):
    def spelled(value):
        if isinstance(value, dict):
            return ("dict", sorted((key, spelled(child)) for key, child in value.items()))
        return (
            ("list", [spelled(child) for child in value])
            if isinstance(value, list)
            else (type(value).__name__, repr(value))
        )

    assert (list(differences(old, new)) == []) == (spelled(old) == spelled(new))


@given(st.dictionaries(st.sampled_from("abc"), plain, max_size=3))
def test_a_copy_differs_in_nothing(value):
    assert list(differences(value, copy.deepcopy(value))) == []
