"""Do agents that share a ledger act on what is not so? A planner, an executor and a verifier, with a compaction midway.

The workload is fixed by its seed. A ledger has ``KEYS`` keys. In each of ``TURNS`` turns an agent picks a key from its
own part of the ledger (with a chance of ``ELSEWHERE`` from anybody's), and writes a new value that follows from what it
believes the old one to be; it reads only what its context does not have. Midway the executor's context is compacted:
its summary drops some of what it had read (``DROPPED``), lies about some (``LIES``, whether the key has changed or
not), and keeps some values word for word (``WHOLE``).

A divergence incident is a write that follows from a belief other than what the ledger holds at that moment. It is
counted with enforcement off (whoever writes last wins) and on (the rules of cpstore: cited writes, a compacted peer
that reads again, ``kept``), and so are re-reads: reads of a key that the agent had read before. The policy they are
held against reads the whole ledger again whenever an agent is refused, and for all agents at the compaction.
"""

from __future__ import annotations

import random
from typing import Any, Protocol

import attrs

import cpstore
from benchmarks.measure import Row, times
from benchmarks.stores import Ground
from cpstore.errors import CompactionConsistencyError
from cpstore.model.ledger import ABSENT, Absent, Held, Member, Seen, member_id
from cpstore.rules import ledger as rules
from cpstore.streams.board import value_digest

AGENTS = ("planner", "executor", "verifier")
COMPACTED = "executor"
KEYS = 48
TURNS = 60
ELSEWHERE = 0.15
DROPPED, LIES, WHOLE = 0.3, 0.4, 0.5
PUBLISHED = "published elsewhere: 0 incidents at about 12 % more re-reads"


@attrs.define
class Count:
    """What happened in one or more runs."""

    incidents: int = 0
    refusals: int = 0
    reads: int = 0
    rereads: int = 0
    everything: int = 0

    def add(self, other: Count) -> None:
        """Add another run."""
        for name in ("incidents", "refusals", "reads", "rereads", "everything"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Shared(Protocol):
    """What the agents share. ``read`` returns value and citation; ``write`` and ``revalidate`` may refuse."""

    def read(self, agent: str, key: str) -> tuple[int, Any]:
        """Return the value of a key and what a write cites."""
        ...

    def write(self, agent: str, key: str, value: int, seen: Any) -> Any:
        """Give a key a new value; returns the citation of it."""
        ...

    def compact(self, agent: str, whole: dict[str, int]) -> None:
        """Tell that an agent's context was compacted; ``whole`` stands in it word for word."""
        ...

    def again(self, agent: str) -> list[str]:
        """Return what an agent has to read again before it may write."""
        ...

    def revalidate(self, agent: str, seen: list[Any]) -> None:
        """Present what was read again."""
        ...

    def truth(self, key: str) -> int:
        """Return what is held, for the count alone."""
        ...


class Unguarded:
    """Enforcement off: a dictionary."""

    def __init__(self, first: dict[str, int]) -> None:
        self._held = dict(first)

    def read(self, agent: str, key: str) -> tuple[int, Any]:
        """Return the value of a key."""
        return self._held[key], None

    def write(self, agent: str, key: str, value: int, seen: Any) -> Any:
        """Let the last one win."""
        self._held[key] = value

    def compact(self, agent: str, whole: dict[str, int]) -> None:
        """Nobody hears of it."""

    def again(self, agent: str) -> list[str]:
        """Ask for nothing."""
        return []

    def revalidate(self, agent: str, seen: list[Any]) -> None:
        """Ask for nothing."""

    def truth(self, key: str) -> int:
        """Return what is held."""
        return self._held[key]


class Ruled:
    """Enforcement on, by the rules alone: ten thousand runs in a minute."""

    def __init__(self, first: dict[str, int]) -> None:
        self._held = {key: (value, Held(1, value_digest(value), 1)) for key, value in first.items()}
        self._position = 1
        self._members = {agent: Member(member_id(agent, None), agent, None) for agent in AGENTS}

    def read(self, agent: str, key: str) -> tuple[int, Any]:
        """Return the value of a key, and remember that it was read."""
        value, held = self._held[key]
        after = rules.read(self._members[agent], [key])
        if after is not None:
            self._members[agent] = after
            self._position += 1
        return value, Seen("board", key, held.revision, held.digest, self._position)

    def write(self, agent: str, key: str, value: int, seen: Seen | Absent | None) -> Any:
        """Ask the rule."""
        put = rules.Put(key, seen, value_digest(value))
        held = {key: self._held[key][1]}
        numbers, self._members[agent] = rules.write("board", self._members[agent], [put], held, self._members.values())
        self._position += 1
        self._held[key] = value, Held(numbers[key], put.digest, self._position)
        return Seen("board", key, numbers[key], put.digest, self._position)

    def compact(self, agent: str, whole: dict[str, int]) -> None:
        """Demote, sparing what stands whole in the new context."""
        kept = {key for key, value in whole.items() if self._held[key][1].digest == value_digest(value)}
        self._members[agent] = rules.demote(self._members[agent], self._position, "compaction", kept)
        self._position += 1

    def again(self, agent: str) -> list[str]:
        """Return the keys to re-read."""
        member = self._members[agent]
        return [] if member.active else list(member.keys)

    def revalidate(self, agent: str, seen: list[Seen]) -> None:
        """Ask the rule."""
        held = {one.key: self._held[one.key][1] for one in seen}
        self._members[agent] = rules.revalidate("board", self._members[agent], seen, held)
        self._position += 1

    def truth(self, key: str) -> int:
        """Return what is held."""
        return self._held[key][0]


class Stored:
    """Enforcement on, by a real store."""

    def __init__(self, store: cpstore.Store, name: str, first: dict[str, int]) -> None:
        self._board = store.ledger(name)
        self._context = store.lineage(name)
        self._context.commit({"said": ["what was said, at length " * 20], "whole": {}}, step=1)
        self._peers = {
            agent: self._board.join(agent, lineage=self._context if agent == COMPACTED else None) for agent in AGENTS
        }
        store.ledger(name).join("seed").write_batch(first, seen=dict.fromkeys(first, ABSENT))

    def read(self, agent: str, key: str) -> tuple[int, Any]:
        """Read as a peer."""
        found = self._peers[agent].read(key)
        return found.value, found

    def write(self, agent: str, key: str, value: int, seen: Any) -> Any:
        """Write as a peer."""
        return self._peers[agent].write(key, value, seen=seen)

    def compact(self, agent: str, whole: dict[str, int]) -> None:
        """Compact the lineage behind the peer."""
        kept = {key: f"/whole/{key}" for key, value in whole.items() if self.truth(key) == value}
        state = {"said": ["a summary of what was said"], "whole": whole}
        self._context.compact(state, summary="/said/0", kept=kept)

    def again(self, agent: str) -> list[str]:
        """Return the keys to re-read."""
        member = self._peers[agent].membership
        return [] if member.active else list(member.keys)

    def revalidate(self, agent: str, seen: list[Any]) -> None:
        """Present what was read again."""
        self._peers[agent].revalidate(seen)

    def truth(self, key: str) -> int:
        """Return what is held."""
        return int(self._board.read(key).value)


def first_values(seed: int) -> dict[str, int]:
    """Return what the ledger begins with."""
    draw = random.Random(f"first {seed}")
    return {f"task-{number:02}": draw.randrange(1000) for number in range(KEYS)}


def run(shared: Shared, seed: int) -> Count:
    """Play one run. The same seed makes the same choices, whatever is shared."""
    draw, count = random.Random(seed), Count()
    beliefs: dict[str, dict[str, tuple[int, Any]]] = {agent: {} for agent in AGENTS}
    known: dict[str, set[str]] = {agent: set() for agent in AGENTS}
    names = sorted(first_values(seed))

    def read(agent: str, key: str) -> None:
        count.reads += 1
        count.rereads += key in known[agent]
        known[agent].add(key)
        beliefs[agent][key] = shared.read(agent, key)

    def act(agent: str, key: str, change: int) -> None:
        belief, seen = beliefs[agent][key]
        count.incidents += belief != shared.truth(key)
        beliefs[agent][key] = belief + change, shared.write(agent, key, belief + change, seen)

    for turn in range(TURNS):
        if turn == TURNS // 2:
            _compact(shared, draw, beliefs[COMPACTED])
            count.everything += len(AGENTS) * KEYS
        agent = AGENTS[turn % len(AGENTS)]
        own = names[AGENTS.index(agent) :: len(AGENTS)]
        key = draw.choice(names if draw.random() < ELSEWHERE else own[: len(own) // 2])
        change = draw.randrange(1, 100)
        if key not in beliefs[agent]:
            read(agent, key)
        try:
            truth = shared.truth(key)
            before = count.incidents
            act(agent, key, change)
        except CompactionConsistencyError:
            # Nothing was written: what was about to diverge did not.
            count.incidents, count.refusals, count.everything = before, count.refusals + 1, count.everything + KEYS
            again = shared.again(agent)
            for one in again:
                read(agent, one)
            if again:
                shared.revalidate(agent, [beliefs[agent][one][1] for one in again])
            if key not in again:
                read(agent, key)
            act(agent, key, change)
            assert truth == beliefs[agent][key][0] - change
    return count


def _compact(shared: Shared, draw: random.Random, context: dict[str, tuple[int, Any]]) -> None:
    """Put a summary in the place of what the executor had read: less, partly untrue, partly word for word."""
    whole: dict[str, int] = {}
    for key in sorted(context):
        value, seen = context[key]
        fate = draw.random()
        if fate < DROPPED:
            del context[key]
        elif fate < DROPPED + (1 - DROPPED) * LIES:
            context[key] = value + draw.randrange(1, 50), seen
        elif draw.random() < WHOLE:
            whole[key] = value
    shared.compact(COMPACTED, whole)


def divergence(ground: Ground, runs: int, sample: int) -> list[Row]:
    """Play the runs with enforcement off and on, and a sample of them on a real store, which must agree."""
    off, on = Count(), Count()
    for seed in range(runs):
        off.add(run(Unguarded(first_values(seed)), seed))
        on.add(run(Ruled(first_values(seed)), seed))
    with ground.store("divergence.db", durability="normal") as store:
        for seed in range(sample):
            stored = run(Stored(store, f"run {seed}", first_values(seed)), seed)
            ruled = run(Ruled(first_values(seed)), seed)
            assert stored == ruled, f"seed {seed}: the store counts {stored}, the rules {ruled}"
    share = on.rereads / on.everything
    more = (on.reads - off.reads) / off.reads
    return [
        Row(
            f"divergence incidents, {runs:,} runs ({sample} of them on a store too)",
            f"{on.incidents}",
            f"enforcement off: {off.incidents:,}",
            "–",
            "0",
            on.incidents == 0 and off.incidents > 0,
            {"on": attrs.asdict(on), "off": attrs.asdict(off)},
        ),
        Row(
            "re-reads that enforcement costs",
            f"{on.rereads:,}, {more:.0%} more reads",
            f"everything again: {on.everything:,}; {PUBLISHED}",
            times(share),
            "≤ 0.33 ×",
            3 * on.rereads <= on.everything,
            {"rereads": on.rereads, "everything": on.everything, "more_reads": more},
        ),
    ]
