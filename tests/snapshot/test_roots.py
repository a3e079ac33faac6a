"""State roots by the words of docs/format.md, section 5, against the stored ones."""

from __future__ import annotations

import random
from hashlib import sha256
from typing import Any

import ormsgpack
import pytest
from strand import MiniLineage

from cpstore.digest import leaf_hash, root_of
from cpstore.snapshot import values
from cpstore.snapshot.edits import Change


def put(value: Any, *, shared: bool = False, top: bool = False) -> bytes:
    """The digest of a value that was put at its place as it is; ``shared``: in a mapping of node kind 3."""
    enc = ormsgpack.packb(value)
    if type(value) is dict and (top or len(enc) >= 2048):
        children = [(sha256(key.encode()).digest(), put(value[key], shared=shared)) for key in sorted(value)]
        if len(value) <= 64:
            return sha256(b"\x02" + b"".join(name + child for name, child in children)).digest()
        buckets = [b"".join(name + child for name, child in children if name[0] == n) for n in range(256)]
        return sha256(b"\x03" + b"".join(sha256(b).digest() if b else bytes(32) for b in buckets)).digest()
    if type(value) is list and len(value) > 1 and len(enc) >= 2048 and not shared:
        return listed(value)
    return leaf_hash(enc)


def listed(items: list[Any]) -> bytes:
    leaves = [leaf_hash(ormsgpack.packb(item)) for item in items]
    return sha256(b"\x04" + len(items).to_bytes(8, "big") + root_of(leaves)).digest()


def top(**children: bytes) -> bytes:
    return sha256(b"\x02" + b"".join(sha256(k.encode()).digest() + children[k] for k in sorted(children))).digest()


def made(rng: random.Random, depth: int = 0) -> Any:
    pick = rng.randrange(2 if depth == 4 else 5)
    if pick < 2:
        return "x" * rng.choice([1, 300, 2500])
    if pick == 2:
        return [made(rng, depth + 1) for _ in range(rng.choice([0, 1, 2, 9]))]
    count = rng.choice([0, 1, 5, 5, 70]) if depth < 2 else 3
    return {f"k{n}": made(rng, depth + 1) for n in range(count)}


@pytest.mark.parametrize("seed", range(12))
def test_a_state_that_is_put_at_once_has_the_root_that_the_document_says(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cpstore.snapshot import writer

    monkeypatch.setattr(writer, "FIRST_MIN", 1 << 30)
    lineage = MiniLineage("a")
    state = {f"top{n}": made(random.Random(f"{seed}/{n}")) for n in range(6)}
    lineage.commit(state)

    assert lineage.roots == [put(state, top=True)]


def test_in_a_shared_mapping_lists_are_leaves_until_they_are_changed() -> None:
    inside = {"t": "x" * 20_000, "l": ["y" * 1100] * 3, "m": {"l": ["z" * 1100] * 3}}
    first, later = MiniLineage("first"), MiniLineage("later")
    first.commit({"m": inside})
    later.commit({})
    later.commit({"m": inside})  # not large enough to be shared later

    assert first.roots[0] == top(m=put(inside, shared=True))
    assert later.roots[1] == top(m=put(inside))
    first.edit(Change("append", ("m", "l"), (values.encode("new"),)))
    changed = [*inside["l"], "new"]
    rest = {key: put(value, shared=True) for key, value in inside.items() if key != "l"}
    assert first.roots[1] == top(m=top(**rest, l=listed(changed)))
    assert first.load() == {"m": {**inside, "l": changed}}


def test_a_node_stays_one_through_a_commit_and_is_put_anew_by_an_edit() -> None:
    large, small = ["x" * 1100] * 3, ["a", "b"]
    committed, edited = MiniLineage("committed"), MiniLineage("edited")
    for lineage in (committed, edited):
        lineage.commit({"l": large})
    committed.commit({"l": small})
    edited.edit(Change("set", ("l",), (values.encode(small),)))

    assert committed.roots[1] == top(l=listed(small))
    assert edited.roots[1] == top(l=put(small)) == put({"l": small}, top=True)
    assert committed.load() == edited.load() == {"l": small}
