"""Two shared ledgers and their members against a plain model: whatever is done in whatever order, who may do what."""

from __future__ import annotations

import copy
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import cpstore
from cpstore import ABSENT, Authority, Binding, Directive, Signer, Status, Supersession
from cpstore.errors import (
    CheckpointStoreError,
    ConflictError,
    InvalidStateError,
    NotFoundError,
    PeerReadOnlyError,
    RevisionConflictError,
    SemanticDriftError,
    StaleWriteError,
)

SIGNER = Signer.from_seed(bytes(range(32)))
LINEAGES = ["a", "b", "c"]
LEDGERS = ["one", "two"]
NAMES = ["peer 1", "peer 2", "peer 3"]
KEYS = ["k1", "k2", "k3", "k4"]

ledgers = st.sampled_from(LEDGERS)
lineages = st.sampled_from(LINEAGES)
keys = st.sampled_from(KEYS)
seeds = st.integers(0, 1 << 20)


class Member:
    def __init__(self, peer: str, lineage: str | None, status: Status, void: int, cursor: int) -> None:
        self.peer = peer
        self.lineage = lineage
        self.status = status
        self.void = void
        self.cursor = cursor
        self.keys: set[str] = set()
        self.kept: set[str] = set()
        self.present = True
        self.meaning = ""
        self.delivered: int | None = None

    @property
    def known(self) -> set[str]:
        return self.keys | self.kept

    def demote(self, status: Status, now: int, kept: frozenset[str] = frozenset()) -> None:
        known = self.known
        self.keys, self.kept, self.void = known - kept, known & kept, now
        if status is Status.READ_ONLY or self.status is Status.ACTIVE:
            self.status = status


class Ledger:
    def __init__(self) -> None:
        self.values: dict[str, list[Any]] = {}
        self.members: dict[str, Member] = {}
        self.events: list[tuple[str, str | None]] = []


class Lineage:
    def __init__(self) -> None:
        self.states: list[Any] = []
        self.acked: list[dict[str, int]] = []
        self.carried: dict[str, int] = {}
        self.meaning = ""
        self.meant: list[str] = []
        self.compacted = False
        self.orders = 0


class Life(RuleBasedStateMachine):
    """``self.now`` counts acts: what was read at a moment is void from a later one on."""

    @initialize()
    def settle(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="cpstore-"))
        self.store = self.open()
        self.now = self.texts = 0
        self.ledgers = {name: Ledger() for name in LEDGERS}
        self.lineages = {name: Lineage() for name in LINEAGES}
        self.handles: dict[str, Any] = {}
        self.peers: dict[tuple[str, str], Any] = {}
        self.reads: list[tuple[str, str, Any, int, int]] = []  # ledger, key, what was read, its revision, when
        for name in LINEAGES:
            self.handle(name).commit({"messages": [f"begin {name} " * 20]}, step=0)
            self.landed(name, {"messages": [f"begin {name} " * 20]})
        for ledger, lineage, peer in (("one", "a", "peer 1"), ("one", None, "peer 2"), ("two", "a", "peer 3")):
            self.join(ledger, lineage, peer)
        self.write("one", 0, dict.fromkeys(KEYS, 0))

    def open(self) -> cpstore.Store:
        return cpstore.open(self.folder / "s.db", signer=SIGNER, durability="normal")

    def teardown(self) -> None:
        if not hasattr(self, "store"):
            return
        try:
            self.reopen()
            self.everything_agrees()
            report = self.store.verify()
            assert report.good, report.findings
            self.store.close()
        finally:
            shutil.rmtree(self.folder)

    # --- the parts of a rule ---------------------------------------------------------------------------------

    def handle(self, name: str) -> Any:
        """Return a handle that has looked."""
        if name not in self.handles:
            self.handles[name] = self.store.lineage(name)
            if self.lineages[name].states:
                self.handles[name].load()
        return self.handles[name]

    def landed(self, name: str, state: Any) -> None:
        line = self.lineages[name]
        line.states.append(copy.deepcopy(state))
        line.meant.append(line.meaning)
        line.carried = {ledger: member.cursor for ledger, member in self.memberships(name)}
        line.acked.append(dict(line.carried))

    def memberships(self, lineage: str) -> list[tuple[str, Member]]:
        found = [(name, ledger.members.get(f"lineage:{lineage}")) for name, ledger in self.ledgers.items()]
        return [(name, member) for name, member in found if member is not None]

    def tell(self, lineage: str, kind: str, change: Any) -> None:
        self.now += 1
        for name, member in self.memberships(lineage):
            change(name, member)
            self.ledgers[name].events.append((kind, lineage))

    def one(self, seed: int, ledger: str) -> tuple[str, Member, Any] | None:
        """Pick a member and its handle."""
        members = self.ledgers[ledger].members
        if not members:
            return None
        identity = sorted(members)[seed % len(members)]
        return identity, members[identity], self.peers[ledger, identity]

    def clash(self, ledger: str, member: Member, meaning: str) -> bool:
        others = [one for one in self.ledgers[ledger].members.values() if one is not member and one.present]
        return any(meaning and one.meaning and one.meaning != meaning for one in others)

    def text(self) -> str:
        self.texts += 1
        return f"text {self.texts}, which is long enough to be a summary"

    def act(self, error: type[Exception] | None, do: Any) -> Any:
        """Do something that must end as the model says: with this error and no entry, or without one."""
        before = self.store.stats()["entries"]
        try:
            found = do()
        except CheckpointStoreError as raised:
            assert type(raised) is error, (raised, error)
            suspect = isinstance(raised, StaleWriteError) and raised.suspect
            assert self.store.stats()["entries"] == before + suspect
            return raised
        assert error is None, error
        return found

    # --- memberships -----------------------------------------------------------------------------------------

    @rule(ledger=ledgers, lineage=st.one_of(st.none(), lineages), name=st.sampled_from(NAMES))
    def join(self, ledger: str, lineage: str | None, name: str) -> None:
        board = self.ledgers[ledger]
        identity = f"peer:{name}" if lineage is None else f"lineage:{lineage}"
        known = board.members.get(identity)
        line = None if lineage is None else self.lineages[lineage]
        meaning = "" if line is None else line.meaning
        handle = None if lineage is None else self.handle(lineage)
        member = known or Member(name, lineage, Status.ACTIVE, 0, len(board.events))
        error: type[Exception] | None = None
        if any(one.peer == name and one.present and one is not known for one in board.members.values()):
            error = ConflictError
        elif self.clash(ledger, member, meaning):
            error = SemanticDriftError
        found = self.act(error, lambda: self.store.ledger(ledger).join(name, lineage=handle))
        if error is not None:
            return
        self.now += 1
        if known is None and line is not None and line.compacted:
            member.status, member.void = Status.SUSPECT, self.now
        if line is not None:
            line.carried.setdefault(ledger, len(board.events))
        board.members[identity] = member
        member.peer, member.present, member.meaning, member.delivered = name, True, meaning, None
        self.peers[ledger, identity] = found

    @rule(ledger=ledgers, seed=seeds)
    def leave(self, ledger: str, seed: int) -> None:
        picked = self.one(seed, ledger)
        if picked is not None:
            _, member, peer = picked
            self.act(None if member.present else InvalidStateError, peer.leave)
            member.present = False

    # --- values ----------------------------------------------------------------------------------------------

    @rule(ledger=ledgers, seed=seeds, key=keys)
    def read(self, ledger: str, seed: int, key: str) -> None:
        picked = self.one(seed, ledger)
        if picked is None:
            return
        _, member, peer = picked
        values = self.ledgers[ledger].values
        error = NotFoundError if key not in values else None if member.present else InvalidStateError
        found = self.act(error, lambda: peer.read(key))
        if error is None:
            assert (found.value, found.revision) == (values[key][-1], len(values[key]))
            member.keys |= {key} - member.kept
            self.now += 1
            self.reads.append((ledger, key, found, found.revision, self.now))

    def cite(self, ledger: str, key: str, how: int, seed: int) -> tuple[Any, bool, bool]:
        """Return a citation, whether it is one at all, and what of the model tells if it is current."""
        old = [read for read in self.reads if read[:2] == (ledger, key)]
        if how == 0 or not old:
            return None, False, False
        if how == 1:
            return ABSENT, True, False
        read = old[-1] if how == 2 else old[seed % len(old)]
        return read, True, True

    @rule(ledger=ledgers, seed=seeds, plan=st.dictionaries(keys, st.integers(0, 5), min_size=1, max_size=3))
    def write(self, ledger: str, seed: int, plan: dict[str, int]) -> None:
        picked = self.one(seed, ledger)
        if picked is None:
            return
        _, member, peer = picked
        values = self.ledgers[ledger].values
        cited, blind, stale = {}, False, False
        for key, how in plan.items():
            held = values.get(key)
            found, _, is_read = self.cite(ledger, key, min(how, 3), seed)
            if how == 5 and held and member.present:  # read it now
                fresh = self.act(None, lambda key=key: peer.read(key))
                member.keys |= {key} - member.kept
                self.now += 1
                found, is_read = (ledger, key, fresh, fresh.revision, self.now), True
                self.reads.append(found)
            if found is None:
                blind = blind or held is not None
            elif is_read:
                stale = stale or held is None or found[3] != len(held) or found[4] <= member.void
                cited[key] = found[2]
            else:
                stale = stale or held is not None
                cited[key] = found
        error: type[Exception] | None = None
        if not member.present:
            error = InvalidStateError
        elif member.status is not Status.ACTIVE:
            error = PeerReadOnlyError
        elif blind or stale:
            error = StaleWriteError
        elif self.clash(ledger, member, member.meaning):
            error = SemanticDriftError
        puts = {key: f"{key} {self.now}" for key in plan}
        found = self.act(error, lambda: peer.write_batch(puts, seen=cited))
        self.now += 1
        if error is None:
            for made in found:
                values.setdefault(made.key, []).append(puts[made.key])
                assert made.revision == len(values[made.key])
                self.reads.append((ledger, made.key, made, made.revision, self.now))
            member.keys |= set(puts) - member.kept
        elif error is StaleWriteError:
            assert found.suspect == blind
            if blind:
                member.demote(Status.SUSPECT, self.now)

    @rule(ledger=ledgers, seed=seeds, how=st.sampled_from(["all", "known", "some", "old"]))
    def revalidate(self, ledger: str, seed: int, how: str) -> None:
        picked = self.one(seed, ledger)
        if picked is None:
            return
        _, member, peer = picked
        board = self.ledgers[ledger]
        wanted = set(board.values) if how == "all" else set(member.keys)
        if how == "some" and wanted:
            wanted.discard(sorted(wanted)[seed % len(wanted)])
        shown: list[tuple[str, str, Any, int, int]] = []
        for key in sorted(wanted):
            if how == "old" or not member.present:
                old = [read for read in self.reads if read[:2] == (ledger, key)]
                shown += old[:1] if seed % 2 else old[-1:]
            else:
                self.read_now(ledger, member, peer, key)
                shown.append(self.reads[-1])
        stale = any(read[3] != len(board.values[read[1]]) or read[4] <= member.void for read in shown)
        error: type[Exception] | None = None
        if not member.present:
            error = InvalidStateError
        elif member.status is not Status.ACTIVE and not member.keys <= {read[1] for read in shown}:
            error = PeerReadOnlyError
        elif stale:
            error = StaleWriteError
        self.act(error, lambda: peer.revalidate([read[2] for read in shown]))
        if error is None:
            member.status = Status.ACTIVE
            member.keys, member.kept = member.known | {read[1] for read in shown}, set()

    def read_now(self, ledger: str, member: Member, peer: Any, key: str) -> None:
        found = self.act(None, lambda: peer.read(key))
        member.keys |= {key} - member.kept
        self.now += 1
        self.reads.append((ledger, key, found, found.revision, self.now))

    # --- events ----------------------------------------------------------------------------------------------

    @rule(ledger=ledgers, seed=seeds, limit=st.integers(0, 3), ack=st.integers(0, 3))
    def poll_and_ack(self, ledger: str, seed: int, limit: int, ack: int) -> None:
        picked = self.one(seed, ledger)
        if picked is None:
            return
        _, member, peer = picked
        told = self.ledgers[ledger].events
        found = self.act(None, lambda: peer.poll(limit=limit))
        assert [(event.kind, event.lineage) for event in found] == told[member.cursor : member.cursor + limit]
        assert peer.wait(0) == (max(member.delivered or 0, member.cursor + len(found)) < len(told))
        member.delivered = max(member.delivered or 0, member.cursor + len(found)) if found else member.delivered
        if 0 < ack <= len(found):
            self.act(None, lambda: peer.ack(found[ack - 1].position))
            member.cursor += ack
        undelivered = self.store.ledger(ledger).events()[max(member.delivered or 0, member.cursor) :]
        if undelivered:
            self.act(InvalidStateError, lambda: peer.ack(undelivered[0].position))

    @rule(ledger=ledgers, name=st.sampled_from(NAMES))
    def report(self, ledger: str, name: str) -> None:
        board = self.ledgers[ledger]
        member = board.members.get(f"peer:{name}")
        if member is None:
            return
        peer = self.peers[ledger, f"peer:{name}"]
        self.act(None if member.present else InvalidStateError, lambda: peer.compacted("all of it, in a line"))
        if member.present:
            self.now += 1
            member.demote(Status.READ_ONLY, self.now)
            board.events.append(("compacted", None))

    # --- lineages --------------------------------------------------------------------------------------------

    @rule(name=lineages)
    def append(self, name: str) -> None:
        state = copy.deepcopy(self.lineages[name].states[-1])
        state["messages"] += [self.text() * 4, self.text() * 4]
        with self.handle(name).edit(step=0) as edit:
            edit.append("/messages", *state["messages"][-2:])
        self.landed(name, state)

    @rule(name=lineages, seed=seeds)
    def shrink(self, name: str, seed: int) -> None:
        state = copy.deepcopy(self.lineages[name].states[-1])
        if len(state["messages"]) < 2:
            return
        at = seed % len(state["messages"])
        del state["messages"][at]
        if seed % 2:
            state["messages"].append(self.text())
            if at == len(state["messages"]) - 1:
                return  # the last one was replaced
            self.handle(name).commit(state, step=0)
        else:
            with self.handle(name).edit(step=0) as edit:
                edit.delete(f"/messages/{at}")
        self.landed(name, state)
        self.tell(name, "shrunk", lambda _, member: member.demote(Status.SUSPECT, self.now))

    @rule(name=lineages, seed=seeds, keep=st.booleans())
    def compact(self, name: str, seed: int, keep: bool) -> None:
        line = self.lineages[name]
        before = line.states[-1]
        gone = before["messages"][: 1 + seed % len(before["messages"])]
        text = self.text()
        state: dict[str, Any] = {"messages": [text, *before["messages"][len(gone) :]], "kept": {}}
        kept: dict[Any, str] = {}
        by_ledger: dict[str, set[str]] = {}
        for ledger, member in self.memberships(name) if keep else []:
            for key in sorted(member.known)[: seed % 3]:
                state["kept"][f"{ledger} {key}"] = self.ledgers[ledger].values[key][-1]
                kept[ledger, key] = f"/kept/{ledger} {key}"
                by_ledger.setdefault(ledger, set()).add(key)
        small = sum(map(len, gone)) <= len(text) + 8
        if small:
            return
        made = self.handle(name).compact(state, summary="/messages/0", kept=kept)
        assert made.kind == "compaction" and self.handle(name).expand()["/messages"] == gone
        self.landed(name, state)
        line.compacted = True
        self.tell(
            name,
            "compacted",
            lambda ledger, member: member.demote(Status.READ_ONLY, self.now, frozenset(by_ledger.get(ledger, ()))),
        )

    @rule(name=lineages, seed=seeds)
    def restore(self, name: str, seed: int) -> None:
        line = self.lineages[name]
        target = seed % len(line.states)
        drift = line.meant[target] not in ("", line.meaning)
        self.act(SemanticDriftError if drift else None, lambda: self.handle(name).restore(target + 1))
        if drift:
            return
        acked = line.acked[target]
        line.carried = {**line.carried, **acked}
        line.states.append(copy.deepcopy(line.states[target]))
        line.acked.append(dict(line.carried))
        line.meant.append(line.meaning)
        self.tell(name, "restored", lambda ledger, member: self.restored(member, acked.get(ledger, 0)))

    def restored(self, member: Member, cursor: int) -> None:
        member.demote(Status.READ_ONLY, self.now)
        member.cursor = cursor

    @rule(name=lineages, built=st.booleans())
    def mean(self, name: str, built: bool) -> None:
        line = self.lineages[name]
        meaning = "built" if built else "merged"
        if line.meaning == meaning:
            return
        binding = Binding("done", meaning)
        line.orders += 1
        order = Directive(Authority.USER, f"message {line.orders}", "from now on")
        terms = {"supersede": [Supersession(binding, order)]} if line.meaning else {"define": [binding]}
        state = line.states[-1]
        self.handle(name).commit(state, step=0, **terms)
        superseded, line.meaning = bool(line.meaning), meaning
        self.landed(name, state)
        for ledger, member in self.memberships(name):
            member.meaning = meaning
            if superseded:
                self.ledgers[ledger].events.append(("superseded", name))

    @rule(name=lineages, ledger=ledgers, key=keys)
    def a_zombie_writes_nothing(self, name: str, ledger: str, key: str) -> None:
        """A handle that looked, and looked away while its lineage compacted."""
        member = self.ledgers[ledger].members.get(f"lineage:{name}")
        values = self.ledgers[ledger].values
        if member is None or not member.present or key not in values:
            return
        zombie = self.store.lineage(name)
        zombie.load()
        ghost = self.store.ledger(ledger).join(member.peer, lineage=zombie)
        target = len(self.lineages[name].states) - 1
        self.restore(name, target)
        self.read_now(ledger, member, ghost, key)
        fresh = self.reads[-1][2]
        self.act(RevisionConflictError, lambda: ghost.write(key, "from the past", seen=fresh))
        self.act(RevisionConflictError, lambda: ghost.revalidate([fresh]))

    # --- looking ---------------------------------------------------------------------------------------------

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.open()
        self.handles.clear()
        for (ledger, identity), _ in list(self.peers.items()):
            member = self.ledgers[ledger].members[identity]
            handle = None if member.lineage is None else self.handle(member.lineage)
            if member.present and not self.clash(ledger, member, member.meaning):
                self.peers[ledger, identity] = self.store.ledger(ledger).join(member.peer, lineage=handle)
                member.delivered = None
            else:
                self.rehandle(ledger, identity, member, handle)

    def rehandle(self, ledger: str, identity: str, member: Member, handle: Any) -> None:
        """Take up a membership that cannot join now, as a process that has kept its handle would have it."""
        from cpstore.ledger import Peer

        board = self.store.ledger(ledger)
        (found,) = [one for one in board.peers() if one.id == identity]
        self.peers[ledger, identity] = Peer(board._desk, found, handle)
        member.delivered = None

    @precondition(lambda self: self.now)
    @rule()
    def everything_agrees(self) -> None:
        for name, model in self.ledgers.items():
            board = self.store.ledger(name)
            found = {one.id: one for one in board.peers()}
            assert set(found) == set(model.members)
            for identity, member in model.members.items():
                one = found[identity]
                assert (one.peer, one.status, one.present) == (member.peer, member.status, member.present)
                assert (set(one.keys), set(one.kept)) == (member.keys, member.kept)
            assert board.keys() == sorted(model.values)
            for key, values in model.values.items():
                assert [version.value for version in board.history(key)] == values[::-1]
            assert [(event.kind, event.lineage) for event in board.events()] == model.events
        for name, line in self.lineages.items():
            for revision, state in enumerate(line.states, 1):
                assert self.store.lineage(name).load(revision) == state


TestLife = Life.TestCase
TestLife.settings = settings(
    settings.default, max_examples=max(25, settings.default.max_examples // 4), stateful_step_count=30
)
