"""Base64 with one spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpstore.errors import CheckpointStoreError, CorruptError
from cpstore.signing.base64 import decode64, encode64


@given(st.binary(max_size=100))
def test_bytes_come_back(raw):
    assert decode64(encode64(raw)) == raw


@pytest.mark.parametrize("text", ["A", "AA", "AA=", "AB==", "AA==\n", " AA==", "-_==", "AA==AA==", "=", "é", "\ud800"])
def test_every_other_spelling_is_refused(text):
    with pytest.raises(CorruptError):
        decode64(text)


@given(st.text(max_size=40))
def test_what_is_read_is_what_would_be_written(text):
    try:
        raw = decode64(text)
    except CheckpointStoreError:
        return
    assert encode64(raw) == text
