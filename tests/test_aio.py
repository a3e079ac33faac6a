"""The surface for event loops: complete, never in the loop's way, and whole whenever a task is cancelled."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import cpstore
import cpstore.aio
from cpstore import ABSENT, Binding, EffectPolicy, EffectState, KeyClaim, Status
from cpstore.aio.pool import MOST, Items, Pool
from cpstore.errors import (
    ConflictError,
    EffectBusyError,
    EffectInDoubtError,
    InvalidStateError,
    NotFoundError,
    PeerReadOnlyError,
    RevisionConflictError,
    SemanticDriftError,
    StorageError,
)
from cpstore.ledger import Peer, SharedLedger
from cpstore.lineage import Edit, Lineage
from cpstore.lineage.effect import EffectBlock, EffectHandle

LONG = [f"message {at}: " + "word " * 20 for at in range(60)]
SHORT = {"messages": ["a summary of everything that was said", *LONG[-2:]], "board": {"a": {"n": 1}}}
ONCE = EffectPolicy.AT_MOST_ONCE


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.db"


def opened(path, **options):
    return cpstore.aio.open(path, durability="normal", **options)


def threads() -> list[str]:
    return [one.name for one in threading.enumerate() if one.name.startswith("cpstore-aio")]


class Gate:
    """A clock that holds whoever reads it up while it is shut, and tells that somebody is held up."""

    def __init__(self) -> None:
        self.open, self.reached = threading.Event(), threading.Event()
        self.open.set()

    def __call__(self) -> int:
        if not self.open.is_set():
            self.reached.set()
            assert self.open.wait(30)
        return time.time_ns() // 1000

    def shut(self) -> None:
        self.reached.clear()
        self.open.clear()

    async def somebody(self) -> None:
        while not self.reached.is_set():
            await asyncio.sleep(0.001)


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open.set()


async def cancelled(task) -> asyncio.CancelledError:
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    return caught.value


# --- the surface ----------------------------------------------------------------------------------------------

PAIRS = {
    "Store": (cpstore.Store, cpstore.aio.Store),
    "Lineage": (Lineage, cpstore.aio.Lineage),
    "Edit": (Edit, cpstore.aio.Edit),
    "EffectHandle": (EffectHandle, cpstore.aio.EffectHandle),
    "EffectBlock": (EffectBlock, cpstore.aio.EffectBlock),
    "SharedLedger": (SharedLedger, cpstore.aio.SharedLedger),
    "Peer": (Peer, cpstore.aio.Peer),
}
# What touches no file: the same word for word. All else is awaited.
AT_ONCE = {
    "Store": {"target", "origin", "engine", "lineage", "ledger"},
    "Lineage": {"id", "namespace", "seen", "edit", "effect"},
    "Edit": {"append", "set", "delete", "splice", "result"},
    "EffectHandle": {"id", "key", "record"},
    "EffectBlock": set(),
    "SharedLedger": {"id", "namespace"},
    "Peer": {"name"},
}
CONTEXTS = {"__enter__": "__aenter__", "__exit__": "__aexit__"}


def public(kind):
    return {name for name in vars(kind) if not name.startswith("_")}


def annotated(text):
    """An annotation without the modules that one of the two sides names."""
    return re.sub(r"\b(blocking|shared)\.", "", str(text))


def parameters(function, less=()):
    found = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default, annotated(one.annotation)) for one in found if one.name not in less]


@pytest.mark.parametrize("name", PAIRS)
def test_every_public_name_is_there_and_no_other(name):
    blocking, awaited = PAIRS[name]

    assert public(awaited) == public(blocking)
    assert {CONTEXTS[each] for each in CONTEXTS if each in vars(blocking)} == {
        each for each in CONTEXTS.values() if each in vars(awaited)
    }


@pytest.mark.parametrize(
    ("name", "member"), [(name, each) for name in PAIRS for each in sorted(public(PAIRS[name][0]))]
)
def test_each_has_the_same_parameters_and_what_it_answers_is_to_be_awaited(name, member):
    blocking, awaited = (vars(kind).get(member) for kind in PAIRS[name])
    assert type(awaited) is type(blocking)

    if isinstance(blocking, property):
        blocking, awaited = blocking.fget, awaited.fget
        wrapped = "{}" if member in AT_ONCE[name] else "Coroutine[Any, Any, {}]"
        coroutine = False
    else:
        wrapped = "{}"
        coroutine = member not in AT_ONCE[name] and not inspect.signature(blocking).return_annotation.startswith("Iter")
    assert parameters(awaited) == parameters(blocking)
    assert inspect.iscoroutinefunction(awaited) == coroutine
    answer = annotated(inspect.signature(blocking).return_annotation)
    answer = f"Async{answer}" if answer.startswith("Iterator") else answer
    assert annotated(inspect.signature(awaited).return_annotation) == wrapped.format(answer)


def test_a_store_is_opened_with_the_same_options():
    assert parameters(cpstore.aio.open, less=["threads"]) == parameters(cpstore.open)


def test_the_package_imports_it_when_it_is_asked_for_and_not_before():
    program = (
        "import cpstore, sys\n"
        "assert 'cpstore.aio' not in sys.modules and 'asyncio' not in sys.modules\n"
        "print(cpstore.aio.open.__module__)\n"
        "try:\n    cpstore.nothing\nexcept AttributeError as error:\n    print(error)\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (done.stderr, done.stdout.splitlines()) == (
        "",
        ["cpstore.aio.store", "module 'cpstore' has no attribute 'nothing'"],
    )


# --- everything once ------------------------------------------------------------------------------------------


def test_checkpoints_are_made_and_read_as_by_the_blocking_surface(path):
    async def main():
        store = await opened(path)
        task = store.lineage("task")
        assert (task.id, task.namespace, task.seen) == ("task", "default", None)
        assert await task.exists is False
        one = await task.commit({"messages": ["a"]}, step=1, define=[Binding("done", "merged")])
        async with task.edit(step=2, key="two") as edit:
            edit.append("/messages", "b", "x", "y")
            edit.splice("/messages", 2, 4, ["c"])
            edit.set("/left", 41)
            edit.set("/gone", 1)
            edit.delete("/gone")
        assert await task.exists is True
        assert await task.head() == edit.result == await task.checkpoint(2) == await task.landed("two")
        assert await task.load() == {"messages": ["a", "b", "c"], "left": 41}
        assert await task.load(1) == {"messages": ["a"]}
        assert [each.revision async for each in task.history()] == [2, 1]
        assert [each async for each in task.history(before=2, limit=1)] == [one]
        assert [each.symbol for each in (await task.glossary()).bindings] == ["done"]
        assert await store.landed("two", lineage="task") == "landed"
        assert await store.landed("three", lineage="task") == "not landed"
        child = await task.fork("child")
        assert (type(child), child.id, await child.outdated()) == (cpstore.aio.Lineage, "child", ())
        assert (await task.plan_restore(1)).head == 2
        assert (await task.restore(1)).revision == 3
        assert [(each.id, each.head.revision) async for each in store.lineages()] == [("child", 1), ("task", 3)]
        assert (await store.verify()).good
        assert (await store.stats())["file_bytes"] > 0
        assert (await store.note()).startswith(store.origin.encode())
        assert (store.target, "SQLite" in store.engine) == (str(path), True)
        await store.close()

    asyncio.run(main())

    with cpstore.open(path) as store:
        assert store.lineage("task").load() == {"messages": ["a"]}


def test_refusals_are_those_of_the_blocking_surface(path):
    async def main():
        async with opened(path) as store:
            task = store.lineage("task")
            with pytest.raises(NotFoundError):
                await task.head()
            with pytest.raises(InvalidStateError):
                store.lineage("")
            await task.commit({}, step=1, define=[Binding("done", "merged")])
            with pytest.raises(SemanticDriftError):
                await task.commit({}, step=2, glossary=cpstore.Glossary(()))
            with pytest.raises(RevisionConflictError):
                await task.commit({}, step=2, expected_revision=7)
            with pytest.raises(InvalidStateError):
                await store.verify(progress=3)
            async with task.edit(step=2) as edit:
                pass
            with pytest.raises(InvalidStateError):
                edit.set("/a", 1)
            with pytest.raises(ZeroDivisionError):
                async with task.edit(step=3) as edit:
                    edit.set("/a", 1 / 0)
            with pytest.raises(NotFoundError):
                _ = edit.result
            assert (await task.head()).revision == 2

    asyncio.run(main())


def test_effects_are_asked_and_settled(path):
    async def main():
        async with opened(path) as store:
            task = store.lineage("task")
            await task.commit({}, step=1)
            async with task.effect("refund", {"order": 17}, policy=ONCE) as refund:
                assert refund.fresh
                await refund.complete({"id": "r1"})
            async with task.effect("refund", {"order": 17}, policy=ONCE) as again:
                assert (again.fresh, await again.outcome, again.key) == (False, {"id": "r1"}, refund.key)
            with pytest.raises(EffectInDoubtError) as caught:
                async with task.effect("mail", 1, policy=ONCE) as mail:
                    pass
            assert (await task.reconcile(caught.value.record, happened=True, who="me", why="saw it")).state.happened
            handle = await task.begin("deploy", 1, policy=ONCE)
            with pytest.raises(EffectBusyError):
                await task.begin("deploy", 1, policy=ONCE)
            await handle.fail("no route", happened=False)
            assert handle.record.state is EffectState.FAILED
            assert (await task.cancel("deploy", 2, policy=ONCE, who="me", why="no")).state is EffectState.CANCELLED
            noted = await task.record("seen", 1, "yes", policy=ONCE, key="k")
            assert (await task.outcome(noted), await task.arguments(noted.id)) == ("yes", 1)
            assert (await task.compensate(noted, who="me", why="undone")).state is EffectState.COMPENSATED
            assert [each.id.name async for each in task.effects()] == ["refund", "mail", "deploy", "deploy", "seen"]
            assert [each async for each in task.effects("refund", in_doubt=True)] == []
            lost = await task.begin("probed", 1, policy=EffectPolicy.RECONCILABLE)
            del lost
            asked = []
            known = await task.begin("probed", 1, policy=EffectPolicy.RECONCILABLE, probe=lambda key: (
                asked.append((key, threading.current_thread().name)), (True, "ok"))[1])  # fmt: skip
            assert (known.fresh, await known.outcome, asked[0][0]) == (False, "ok", known.key)
            assert asked[0][1].startswith("cpstore-aio")
            assert mail.id.name == "mail"

    asyncio.run(main())


def test_a_ledger_is_shared_and_a_compaction_is_heard(path):
    async def main():
        async with opened(path) as store:
            task = store.lineage("task")
            await task.commit({"messages": LONG, "board": {"a": {"n": 1}}}, step=1)
            board = store.ledger("board")
            assert await board.exists is False
            planner, worker = await board.join("planner"), await board.join("worker", lineage=task)
            assert (planner.name, await board.exists, board.id, board.namespace) == (
                "planner",
                True,
                "board",
                "default",
            )
            one = await planner.write("a", {"n": 1}, seen=ABSENT)
            await planner.write_batch({"b": 1, "c": 2})
            assert (await worker.read("a")).value == one.value == (await board.read("a")).value
            assert [each.value for each in await worker.read_all()] == [{"n": 1}, 1, 2]
            claims = [KeyClaim("board", "a", one.revision, one.digest)]
            await task.compact(SHORT, summary="/messages/0", claims=claims, kept={"a": "/board/a"})
            assert (await task.expand())["/messages"][0] == LONG[0]
            assert (await worker.status, (await worker.membership).kept) == (Status.READ_ONLY, ("a",))
            with pytest.raises(PeerReadOnlyError):
                await worker.write("b", 2, seen=await worker.read("b"))
            assert await planner.wait() is True
            (event,) = await planner.poll(limit=5)
            assert (event.kind, await board.events(after=event.position)) == ("compacted", [])
            assert await board.events() == [event]
            await planner.ack(event.position)
            assert (await planner.poll(), await planner.wait(0.02)) == ([], False)
            await worker.revalidate(await worker.read_all())
            two = await worker.write("a", {"n": 2}, seen=await worker.read("a"))
            assert [each.revision async for each in board.history("a")] == [two.revision, one.revision]
            await planner.compacted("forgot everything", tokens_before=9, tokens_after=1)
            await planner.leave()
            assert [each.present for each in await board.peers()] == [True, False]
            assert (await board.keys(), [one.id async for one in store.ledgers()]) == (["a", "b", "c"], ["board"])
            with pytest.raises(ConflictError):
                await board.join("worker")

    asyncio.run(main())


def test_a_blocking_handle_of_the_same_lineage_may_join(path):
    with cpstore.open(path) as blocking:
        task = blocking.lineage("task")
        task.commit({}, step=1)

        async def main():
            async with opened(path) as store:
                await (await store.ledger("board").join("worker", lineage=task)).write("a", 1)
                with pytest.raises(InvalidStateError):
                    await store.ledger("board").join("other", lineage=3)

        asyncio.run(main())


# --- iterating ------------------------------------------------------------------------------------------------


def test_a_long_history_is_complete_and_in_order_and_read_a_little_at_a_time(path):
    async def main():
        async with opened(path) as store:
            task = store.lineage("task")
            for step in range(1, 3 * MOST):
                async with task.edit(step=step) as edit:
                    edit.set("/step", step)
            assert [each.revision async for each in task.history()] == list(range(3 * MOST - 1, 0, -1))

    asyncio.run(main())
    asked = []

    def source():
        for number in range(1000):
            asked.append(number)
            yield number

    async def first():
        pool = Pool()
        async for number in Items(pool, source):
            break
        assert (number, asked) == (0, [0])
        async for number in Items(pool, source):
            if number == 20:
                break
        assert len(asked) - 1 <= 21 + MOST
        await pool.close(lambda: None)

    asyncio.run(first())


def test_what_comes_before_an_error_is_given_out_first_and_the_error_once():
    def source():
        yield from range(5)
        raise NotFoundError("the rest is damaged")

    async def main():
        pool = Pool()
        items, found = Items(pool, source), []
        with pytest.raises(NotFoundError):
            async for item in items:
                found.append(item)
        assert (found, [item async for item in items]) == ([0, 1, 2, 3, 4], [])
        await pool.close(lambda: None)

    asyncio.run(main())


def test_errors_of_the_arguments_come_with_the_first_item(path):
    async def main():
        async with opened(path) as store:
            for items, kind in [
                (store.lineage("none").history(), NotFoundError),
                (store.lineage("none").history(limit=-1), InvalidStateError),
                (store.lineage("none").effects(), NotFoundError),
                (store.lineages(namespace=""), InvalidStateError),
                (store.ledger("none").history("a"), NotFoundError),
            ]:
                with pytest.raises(kind):
                    await anext(items)

    asyncio.run(main())


def test_a_cancelled_iteration_loses_nothing_and_tasks_that_share_it_get_each_item_once():
    def source():
        for number in range(40):
            time.sleep(0.001)
            yield number

    async def main():
        pool, found, draw = Pool(), [], random.Random(3)
        items = Items(pool, source)
        while True:
            try:
                found.append(await asyncio.wait_for(anext(items), draw.random() * 0.01))
            except TimeoutError:
                continue
            except StopAsyncIteration:
                break
        assert found == list(range(40))
        shared = Items(pool, source)

        async def take():
            return [item async for item in shared]

        found = await asyncio.gather(take(), take(), take())
        assert sorted(item for each in found for item in each) == list(range(40))
        await pool.close(lambda: None)

    asyncio.run(main())


# --- cancelling -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_a_commit_that_is_cancelled_at_any_moment_is_whole_or_has_not_taken_place(path, seed):
    """Two threads for four lineages, so that calls are cancelled in the queue, at work and at their end."""
    draw, rounds, names = random.Random(seed), 30, ["a", "b", "c", "d"]
    states = {name: [{"n": 0, "text": LONG}] for name in names}

    async def one(store, name, number):
        state = {"n": number, "text": LONG[: draw.randrange(60)]}
        key, lineage = f"{name} {number}", store.lineage(name)
        await lineage.head()
        task = asyncio.create_task(lineage.commit(state, step=number, key=key))
        await asyncio.sleep(draw.choice([0, draw.random() * 0.004]))
        task.cancel()
        try:
            await task
            said = True
        except asyncio.CancelledError:
            said = None
        landed = await lineage.landed(key)
        assert landed is not None or said is None
        assert await store.landed(key, lineage=name) == ("not landed" if landed is None else "landed")
        if draw.random() < 0.3:  # the same call again is safe
            again = await lineage.commit(state, step=number, key=key)
            assert landed in (None, again)
            landed = again
        if landed is not None:
            states[name].append(state)
        assert (await lineage.head()).revision == len(states[name])
        return landed is not None

    async def main():
        async with opened(path, threads=2) as store:
            for name in names:
                await store.lineage(name).commit(states[name][0], step=0)
            found = []
            for number in range(1, rounds):
                found += await asyncio.gather(*(one(store, name, number) for name in names))
            assert set(found) == {True, False}

    asyncio.run(main())

    with cpstore.open(path) as store:
        assert store.verify().good
        for name in names:
            lineage = store.lineage(name)
            assert [lineage.load(at) for at in range(1, len(states[name]) + 1)] == states[name]
            assert lineage.head().revision == len(states[name])


def test_a_call_that_no_thread_has_yet_is_withdrawn_at_once(path, gate):
    async def main():
        async with opened(path, clock=gate, threads=1) as store:
            await store.lineage("a").commit({}, step=1)
            gate.shut()
            running = asyncio.create_task(store.lineage("b").commit({}, step=1))
            await gate.somebody()
            edit = store.lineage("c").edit(step=1)

            async def block():
                async with edit:
                    edit.set("/a", 1)

            queued = asyncio.create_task(block())
            await asyncio.sleep(0.01)
            assert (await cancelled(queued)).__cause__ is None
            assert not gate.open.is_set()
            with pytest.raises(InvalidStateError):
                edit.set("/a", 2)
            gate.open.set()
            assert (await running).revision == 1
            assert [await store.lineage(name).exists for name in "abc"] == [True, True, False]

    asyncio.run(main())


def test_a_call_at_work_ends_before_the_cancellation_arrives_however_often_it_is_cancelled(path, gate):
    async def main():
        async with opened(path, clock=gate) as store:
            gate.shut()
            lineage = store.lineage("a")
            task = asyncio.create_task(lineage.commit({"n": 1}, step=1, key="one"))
            await gate.somebody()
            for _ in range(3):
                task.cancel("enough")
                await asyncio.sleep(0.005)
                assert not task.done()
            gate.open.set()
            with pytest.raises(asyncio.CancelledError, match="enough"):
                await task
            assert (await lineage.landed("one")).revision == lineage.seen == 1
            with pytest.raises(TimeoutError):
                gate.shut()
                asyncio.get_running_loop().call_later(0.1, gate.open.set)
                async with asyncio.timeout(0.02):
                    await lineage.commit({"n": 2}, step=2)
            assert await lineage.load() == {"n": 2}

    asyncio.run(main())


def test_what_a_cancelled_call_raised_is_the_cause_of_the_cancellation(path, gate):
    async def main():
        async with opened(path, clock=gate) as store:
            lineage = store.lineage("a")
            await lineage.commit({}, step=1)
            handle = store.lineage("a")
            await handle.head()
            await lineage.commit({}, step=2)
            gate.shut()
            task = asyncio.create_task(handle.commit({}, step=3))
            await asyncio.sleep(0.02)
            task.cancel()
            gate.open.set()
            with pytest.raises((asyncio.CancelledError, RevisionConflictError)) as caught:
                await task
            found = caught.value
            assert isinstance(found if found.__cause__ is None else found.__cause__, RevisionConflictError)
        pool, entered, leave = Pool(), threading.Event(), threading.Event()

        def fail():
            entered.set()
            leave.wait(30)
            raise NotFoundError("nothing there")

        task = asyncio.create_task(pool.run(fail))
        while not entered.is_set():
            await asyncio.sleep(0.001)
        asyncio.get_running_loop().call_later(0.02, leave.set)
        assert isinstance((await cancelled(task)).__cause__, NotFoundError)
        await pool.close(lambda: None)

    asyncio.run(main())


def test_an_effect_block_that_is_cancelled_inside_leaves_the_effect_in_doubt(path):
    async def main():
        async with opened(path) as store:
            lineage = store.lineage("a")
            await lineage.commit({}, step=1)
            inside, kept = asyncio.Event(), []

            async def act():
                async with lineage.effect("pay", 1, policy=ONCE) as handle:
                    kept.append(handle)
                    inside.set()
                    await asyncio.sleep(60)

            task = asyncio.create_task(act())
            await inside.wait()
            await cancelled(task)
            assert (kept[0].record.state, kept[0].record.owner) == (EffectState.STARTED, None)
            assert "CancelledError" in kept[0].record.error
            (doubt,) = [each async for each in lineage.effects(in_doubt=True)]
            with pytest.raises(EffectInDoubtError):
                await lineage.begin("pay", 1, policy=ONCE)
            await lineage.reconcile(doubt, happened=False, who="me", why="asked the bank")
            assert (await lineage.begin("pay", 1, policy=ONCE)).fresh

    asyncio.run(main())


def test_an_effect_whose_handle_never_arrived_is_known_not_to_have_happened(path, gate):
    async def main():
        async with opened(path, clock=gate) as store:
            lineage = store.lineage("a")
            await lineage.commit({}, step=1)

            async def block(policy):
                async with lineage.effect(policy.value, 1, policy=policy):
                    raise AssertionError("not reached")

            for policy in EffectPolicy:
                for start in (lambda: lineage.begin(policy.value, 1, policy=policy), lambda: block(policy)):
                    gate.shut()
                    task = asyncio.create_task(start())
                    await gate.somebody()
                    asyncio.get_running_loop().call_later(0.01, gate.open.set)
                    await cancelled(task)
                    (known,) = [each async for each in lineage.effects(policy.value)]
                    expected = EffectState.STARTED if policy.repeatable else EffectState.FAILED
                    assert (known.state, known.owner) == (expected, None)
                handle = await lineage.begin(policy.value, 1, policy=policy)
                assert (handle.fresh, handle.record.attempt) == (True, 3)
                await handle.complete(policy.value)
                # What is only replayed has nothing to be undone.
                again = asyncio.create_task(lineage.begin(policy.value, 1, policy=policy))
                await asyncio.sleep(0)
                again.cancel()
                await asyncio.wait([again])
                if policy is not EffectPolicy.READ_ONLY:  # one that changes nothing may have been begun once more
                    assert await lineage.outcome(handle.id) == policy.value

    asyncio.run(main())


@pytest.mark.parametrize("way", ["complete", "fail", "record", "reconcile", "compensate", "cancel"])
def test_what_says_what_happened_is_recorded_though_its_task_was_cancelled_before_a_thread_had_it(path, gate, way):
    async def main():
        async with opened(path, clock=gate, threads=1) as store:
            lineage = store.lineage("a")
            await lineage.commit({}, step=1)
            handle = await lineage.begin("pay", 1, policy=ONCE)
            if way == "compensate":
                await handle.complete("done")
            elif way == "reconcile":
                await handle.fail("lost")
            calls = {
                "complete": lambda: handle.complete("done"),
                "fail": lambda: handle.fail("no", happened=False),
                "record": lambda: lineage.record("mail", 1, policy=ONCE),
                "reconcile": lambda: lineage.reconcile(handle.id, happened=True, who="me", why="saw"),
                "compensate": lambda: lineage.compensate(handle.id, who="me", why="undone"),
                "cancel": lambda: lineage.cancel("mail", 1, policy=ONCE, who="me", why="no"),
            }
            gate.shut()
            running = asyncio.create_task(store.lineage("b").commit({}, step=1))
            await gate.somebody()
            task = asyncio.create_task(calls[way]())
            await asyncio.sleep(0.01)
            asyncio.get_running_loop().call_later(0.02, gate.open.set)
            await cancelled(task)
            await running
            states = {
                "complete": EffectState.COMPLETED,
                "fail": EffectState.FAILED,
                "record": EffectState.COMPLETED,
                "reconcile": EffectState.HAPPENED,
                "compensate": EffectState.COMPENSATED,
                "cancel": EffectState.CANCELLED,
            }
            assert [each.state async for each in lineage.effects()][-1] is states[way]

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(3))
def test_an_effect_that_is_cancelled_at_any_moment_is_known_or_in_doubt_and_never_carried_out_twice(path, seed):
    draw, done = random.Random(seed), []

    async def act(lineage, order):
        async with lineage.effect("pay", order, policy=ONCE) as handle:
            if handle.fresh:
                await asyncio.sleep(draw.random() * 0.002)
                done.append(order)  # the world has moved
                await handle.complete(order)
            return await handle.outcome

    async def main():
        async with opened(path, threads=2) as store:
            lineage = store.lineage("a")
            await lineage.commit({}, step=1)
            for order in range(60):
                task = asyncio.create_task(act(lineage, order))
                await asyncio.sleep(draw.random() * 0.008)
                task.cancel()
                await asyncio.wait([task])
                assert all([each.state.settled or each.owner is None async for each in lineage.effects("pay")])
                try:
                    assert await act(lineage, order) == order
                except EffectInDoubtError as error:
                    took = order in done
                    result = order if took else None
                    await lineage.reconcile(error.record, happened=took, who="me", why="looked", result=result)
                    assert await act(lineage, order) == order
                assert done.count(order) == 1

    asyncio.run(main())


def test_a_verification_that_is_cancelled_ends_soon(path):
    async def main():
        async with opened(path) as store:
            lineage, seen = store.lineage("a"), []
            for step in range(30):
                await lineage.commit({"n": step}, step=step)
            calls, started = [], threading.Event()
            await store.verify(progress=lambda done, total: calls.append((done, total)))
            assert len(calls) > 5

            def slow(done, total):
                seen.append(done)
                started.set()
                time.sleep(0.02)

            task = asyncio.create_task(store.verify(progress=slow))
            while not started.is_set():
                await asyncio.sleep(0.001)
            await cancelled(task)
            assert len(seen) < len(calls)

    asyncio.run(main())


# --- waiting --------------------------------------------------------------------------------------------------


def test_a_peer_that_waits_takes_no_thread_from_anybody(path, gate):
    async def main():
        async with opened(path, clock=gate, threads=1) as store:
            board = store.ledger("board")
            peers = [await board.join(f"p{at}") for at in range(5)]
            waiting = [asyncio.create_task(peer.wait()) for peer in peers[1:]]
            await asyncio.sleep(0.05)
            for step in range(5):
                await asyncio.wait_for(store.lineage("a").commit({}, step=step, expected_revision=step), 10)
            assert not any(task.done() for task in waiting)
            gate.shut()  # and nobody takes theirs
            busy = asyncio.create_task(store.lineage("a").commit({}, step=9, expected_revision=5))
            await gate.somebody()
            assert await asyncio.wait_for(peers[0].wait(0.05), 5) is False
            gate.open.set()
            await busy
            await peers[0].compacted("forgot")
            assert await asyncio.wait_for(asyncio.gather(*waiting), 10) == [True] * 4
            with pytest.raises(InvalidStateError):
                await peers[0].wait("soon")

    asyncio.run(main())


def test_a_wait_is_cancelled_at_once_and_ended_by_a_closing(path):
    async def main():
        store = await opened(path)
        peer = await store.ledger("board").join("p")
        task = asyncio.create_task(peer.wait())
        await asyncio.sleep(0.05)
        began = time.monotonic()
        await cancelled(task)
        assert time.monotonic() - began < 2
        task = asyncio.create_task(peer.wait())
        await asyncio.sleep(0.01)
        await store.close()
        with pytest.raises(StorageError):
            await asyncio.wait_for(task, 10)

    asyncio.run(main())


def test_an_event_from_another_store_object_is_heard(path):
    async def main():
        async with opened(path) as store:
            peer = await store.ledger("board").join("p")
            waiting = asyncio.create_task(peer.wait(30))
            await asyncio.sleep(0.02)

            def elsewhere():
                with cpstore.open(path) as other:
                    other.ledger("board").join("q").compacted("forgot")

            await asyncio.to_thread(elsewhere)
            assert await waiting is True

    asyncio.run(main())


# --- the loop and the threads ----------------------------------------------------------------------------------


def test_a_commit_that_has_to_wait_for_the_lock_does_not_delay_the_loop(path):
    held, leave = threading.Event(), threading.Event()

    def hold():
        with cpstore.open(path) as other, other._journal.backend.write():
            held.set()
            leave.wait(30)

    async def main():
        async with opened(path) as store:
            lineage = store.lineage("a")
            await lineage.commit({}, step=1)
            thread = threading.Thread(target=hold)
            thread.start()
            while not held.is_set():
                await asyncio.sleep(0.001)
            tasks = [asyncio.create_task(lineage.commit({}, step=2)) for _ in range(3)]
            ticks = 0
            while ticks < 50:
                await asyncio.sleep(0.001)
                ticks += 1
            assert not any(task.done() for task in tasks)
            leave.set()
            done = await asyncio.gather(*tasks)
            thread.join()
            assert sorted(each.revision for each in done) == [2, 3, 4]

    asyncio.run(main())


def test_a_long_commit_lets_a_ticking_coroutine_tick(path):
    state = {"messages": [{"n": at, "text": f"{at} " * 40} for at in range(60_000)]}

    async def main():
        async with opened(path) as store:
            lineage = store.lineage("a")
            began = time.monotonic()
            task = asyncio.create_task(lineage.commit(state, step=1))
            gaps, last = [], time.monotonic()
            while not task.done():
                await asyncio.sleep(0.001)
                now = time.monotonic()
                gaps.append(now - last)
                last = now
            took = time.monotonic() - began
            assert (await task).revision == 1
            assert len(gaps) > 5, (took, gaps)
            assert max(gaps) < max(took / 2, 0.1), (took, max(gaps))

    asyncio.run(main())


def test_threads_are_few_and_end_with_the_store(path):
    async def main():
        async with opened(path, threads=3) as store:
            lineages = [store.lineage(f"l{at}") for at in range(12)]
            await asyncio.gather(*(lineage.commit({}, step=1) for lineage in lineages))
            assert len(threads()) <= 3
            await (await store.ledger("board").join("p")).wait(0)
            assert len(threads()) <= 4
        assert threads() == []

    asyncio.run(main())


def test_closing_lets_what_was_called_end_and_refuses_what_comes_later(path, gate):
    async def main():
        store = await opened(path, clock=gate, threads=1)
        lineage = store.lineage("a")
        peer = await store.ledger("board").join("p")
        gate.shut()
        tasks = [asyncio.create_task(store.lineage(name).commit({}, step=1)) for name in "abc"]
        await gate.somebody()
        closing = asyncio.create_task(store.close())
        again = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        for refused in (lineage.head, peer.wait):
            with pytest.raises(StorageError, match="closed"):
                await refused()
        closing.cancel()
        again.cancel()
        await asyncio.sleep(0.01)
        assert not closing.done()
        assert not again.done()
        with pytest.raises(StorageError, match="closed"):
            async with lineage.edit(step=2) as edit:
                edit.set("/a", 1)
        gate.open.set()
        assert [(await task).revision for task in tasks] == [1, 1, 1]
        for task in (closing, again):
            with pytest.raises(asyncio.CancelledError):
                await task
        assert threads() == []
        await store.close()

    asyncio.run(main())


def test_closing_waits_for_a_look_that_is_under_way():
    async def main():
        pool, leave = Pool(), threading.Event()
        look = asyncio.create_task(pool.look(leave.wait, 30))
        await asyncio.sleep(0.01)
        closing = asyncio.create_task(pool.close(lambda: None))
        await asyncio.sleep(0.02)
        assert not closing.done()
        leave.set()
        await closing
        assert (threads(), await look) == ([], True)

    asyncio.run(main())


def test_the_error_of_a_block_is_not_hidden_by_one_of_the_closing(path, monkeypatch):
    async def main():
        with pytest.raises(ZeroDivisionError):
            async with opened(path) as store:
                await store.lineage("a").commit({}, step=1)
                monkeypatch.setattr(store._store._journal, "note", broken)
                raise ZeroDivisionError
        assert threads() == []
        store = await opened(path)
        monkeypatch.setattr(store._store._journal, "note", broken)
        results = await asyncio.gather(store.close(), store.close(), return_exceptions=True)
        assert [type(each) for each in results] == [StorageError, type(None)]
        assert threads() == []

    def broken():
        raise StorageError("the disk is full")

    asyncio.run(main())


def test_an_opening_that_fails_or_is_cancelled_leaves_no_thread_and_no_open_store(path, gate):
    async def main():
        with pytest.raises(NotFoundError):
            await opened(path, create=False)
        for threads_asked in (0, -1, 2.0, True):
            with pytest.raises(InvalidStateError):
                await opened(path, threads=threads_asked)
        assert threads() == []
        gate.shut()
        closed = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(cpstore.Store, "close", lambda self, real=cpstore.Store.close: (closed.append(1), real(self)))
            task = asyncio.create_task(opening(path, gate))
            await gate.somebody()
            asyncio.get_running_loop().call_later(0.02, gate.open.set)
            await cancelled(task)
        assert (threads(), closed) == ([], [1])

    async def opening(path, gate):
        return await opened(path, clock=gate)

    asyncio.run(main())


def test_a_store_that_was_opened_before_a_fork_is_refused_in_the_child(path, monkeypatch):
    async def main():
        async with opened(path) as store:
            with monkeypatch.context() as patch:
                patch.setattr("os.getpid", lambda: 1)
                with pytest.raises(StorageError, match="fork"):
                    await store.stats()

    asyncio.run(main())


def test_callbacks_see_the_context_of_who_calls_and_none_of_them_stops_the_loop(path):
    who = contextvars.ContextVar("who", default="nobody")

    def redact(name, value):
        if name == "stop":
            raise StopIteration
        return f"{value} for {who.get()}"

    async def main():
        async with opened(path, redact=redact) as store:
            lineage = store.lineage("a")
            await lineage.commit({}, step=1)
            who.set("ann")
            noted = await lineage.record("mail", "text", policy=ONCE, key="1")
            assert await lineage.arguments(noted) == "text for ann"
            with pytest.raises(RuntimeError, match="StopIteration"):
                await asyncio.wait_for(lineage.record("stop", 1, policy=ONCE, key="2"), 10)

    asyncio.run(main())


def test_a_program_that_never_closes_ends_all_the_same_and_what_it_called_is_whole(path):
    program = (
        "import asyncio, cpstore.aio, sys\n"
        "async def main():\n"
        "    store = await cpstore.aio.open(sys.argv[1])\n"
        "    await store.lineage('a').commit({}, step=1)\n"
        "    waiting = asyncio.create_task((await store.ledger('b').join('p')).wait())\n"
        "    task = asyncio.create_task(store.lineage('a').commit({'n': 2}, step=2, expected_revision=1))\n"
        "    await asyncio.sleep(0)\n"
        "asyncio.run(main())\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, check=False, timeout=60
    )

    assert (done.returncode, done.stderr) == (0, "")
    with cpstore.open(path) as store:
        assert store.lineage("a").head().revision in (1, 2)
        assert store.verify().good


def test_the_program_of_the_page_runs(tmp_path):
    page = (Path(__file__).parent.parent / "docs" / "async.md").read_text("utf-8")
    program = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[0]

    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (done.stderr, done.stdout) == ("", "2 r-1\n1 r-1\n")


def test_objects_say_what_they_are(path):
    async def main():
        async with opened(path) as store:
            lineage, ledger = store.lineage("a"), store.ledger("b")
            await lineage.commit({}, step=1)
            handle = await lineage.begin("pay", 1, policy=ONCE)
            peer = await ledger.join("p")
            assert repr(store) == f"<aio.Store {path} {store.origin}>"
            assert (repr(lineage), repr(ledger)) == ("<aio.Lineage default/a>", "<aio.SharedLedger default/b>")
            assert (repr(handle)[:17], repr(peer)[:14]) == ("<aio.EffectHandle", "<aio.Peer 'p' ")

    asyncio.run(main())
