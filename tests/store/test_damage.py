"""Flip any bit of a closed store: verify names it, or nothing that a reader sees has changed."""

from __future__ import annotations

import os
import random
import time

import pytest
from sample import KEYS, SIGNER, make
from store_cases import answer, seen, seen_of, size

import cpstore
from cpstore.errors import CheckpointStoreError

FAST, SLOW = 300, 2_400
PARTS = 4
LONGEST = 20.0
"""Seconds that one look at a damaged store may take on a busy machine; a sound one takes a fiftieth of one."""


@pytest.fixture
def sample(path, small):
    states = make(path)
    return path, {name: len(revisions) for name, revisions in states.items()}


def look(path, counts, *, checked=True):
    """Return what a reader sees of the store at ``path`` by question, and the damage that verify names."""
    try:
        store = cpstore.open(path, read_only=True, signer=SIGNER)
    except CheckpointStoreError as error:
        return {"open": error}, ["open"]
    with store:
        found = seen(store)
        for (namespace, name), count in counts.items():
            lineage = store.lineage(name, namespace=namespace)
            part = seen_of(lineage, count, KEYS if (namespace, name) == ("default", "task") else ())
            found |= {f"{namespace}/{name} {question}": value for question, value in part.items()}
        report = answer(store.verify)
        if isinstance(report, CheckpointStoreError):
            return found, ["verify"]
        return found, [finding.id for finding in report.findings if finding.severity == "damage"]


def flip(path, bit):
    """Turn one bit of a file over."""
    with open(path, "r+b") as file:
        file.seek(bit // 8)
        (byte,) = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def deceived(question, value, right):
    """Whether an answer is wrong without saying so. Only of rows that are gone may a reader see fewer."""
    if isinstance(value, Exception) or value == right:
        return False
    if question == "lineages":
        return not set(value) <= set(right)
    if "history" in question:
        return value != right[-len(value) :]
    return "key" not in question or value is not None


def assert_no_bit_deceives(sample, bits):
    path, counts = sample
    sound, damage = look(path, counts)
    assert not damage and not any(isinstance(value, Exception) for value in sound.values())
    named = 0
    for bit in bits:
        flip(path, bit)
        started = time.monotonic()
        found, damage = look(path, counts)
        assert time.monotonic() - started < LONGEST, f"bit {bit}: too slow"
        flip(path, bit)
        named += bool(damage)
        for question, value in found.items():
            assert not deceived(question, value, sound.get(question)), f"bit {bit}: {question} is answered wrongly"
            assert damage or value == sound.get(question), f"bit {bit}: {question}: {value}, but verify is content"
    assert look(path, counts) == (sound, [])
    # If hardly anything was named, the flips did not hit what they should.
    assert named > len(bits) // 2


def bits_of(path, seed, count):
    """Choose bits: nine of ten in bytes that are used, the others anywhere in the file."""
    chosen, whole = random.Random(seed), path.read_bytes()
    used = [at for at, byte in enumerate(whole) if byte]
    places = [*chosen.choices(used, k=count * 9 // 10), *chosen.choices(range(len(whole)), k=count - count * 9 // 10)]
    return [place * 8 + chosen.randrange(8) for place in places]


def test_a_flipped_bit_is_named_or_changes_nothing(sample):
    assert_no_bit_deceives(sample, bits_of(sample[0], "fast", FAST))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_none_of_thousands_of_flipped_bits_deceives_a_reader(sample, part):
    assert_no_bit_deceives(sample, bits_of(sample[0], f"slow {part}", SLOW // PARTS))


def test_a_truncated_file_is_a_typed_error_at_every_length(sample):
    path, counts = sample
    sound, _ = look(path, counts)
    for length in sorted(random.Random("cut").sample(range(1, size(path) - 1), 40), reverse=True):
        os.truncate(path, length)
        found, damage = look(path, counts)
        assert damage, f"cut to {length} bytes and nobody notices"
        assert not [question for question, value in found.items() if deceived(question, value, sound.get(question))]


def test_f19_a_page_copied_over_another_is_named_or_changes_nothing(sample):
    path, counts = sample
    sound, _ = look(path, counts)
    whole = path.read_bytes()
    pages = len(whole) // 4096
    chosen = random.Random("pages")
    for _ in range(60):
        source, target = chosen.sample(range(pages), 2)
        copy = bytearray(whole)
        copy[target * 4096 : target * 4096 + 4096] = whole[source * 4096 : source * 4096 + 4096]
        path.write_bytes(copy)
        found, damage = look(path, counts)
        wrong = [question for question, value in found.items() if deceived(question, value, sound.get(question))]
        assert not wrong, f"page {source} over {target}"
        assert damage or found == sound, f"page {source} over {target}: nobody notices"
