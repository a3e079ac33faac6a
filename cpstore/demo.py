"""A short agent run in a fresh store: four refusals, and how to go on after each. Every error shown is a real one."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from cpstore.errors import (
    CheckpointStoreError,
    ConflictError,
    PeerReadOnlyError,
    SemanticDriftError,
    UnsafeRollbackError,
)
from cpstore.model.binding import Authority, Binding, Directive, Supersession
from cpstore.model.effect import EffectPolicy
from cpstore.model.glossary import Glossary
from cpstore.store import Store, open_store

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from cpstore.ledger import Peer
    from cpstore.lineage import Lineage
    from cpstore.signing.keys import Signer

PATH = "cpstore-demo.db"
LINEAGE = "invoice-42"
LEDGER = "invoices"
EFFECT = "refund"

MEANING = "request timeout of the gateway"
TIMEOUT = Binding("timeout", MEANING, constraint="unit: milliseconds", authority=Authority.USER)
SECONDS = attrs.evolve(TIMEOUT, constraint="unit: seconds")
TALK = (
    ("user", "Refund the double charge on invoice 42, 990 cents. The gateway timeout is 3000 milliseconds."),
    ("assistant", "Understood: timeout 3000 ms. I look the invoice up."),
    ("tool", "GET /invoices/42 -> 200 after 812 ms: two charges of 990 cents, order 17"),
    ("assistant", "Confirmed: charged twice. The refund needs an approval, I ask for it."),
    ("tool", "GET /approvals/42 -> 200 after 655 ms: approved, at most 990 cents"),
)
SUMMARY = "So far: invoice 42 was charged twice, a refund of 990 cents is approved; the timeout is {}."


class DemoError(RuntimeError):
    """The store did not do what it promises."""


@attrs.define
class Gateway:
    """The world outside: it carries out what it is asked to, even when its answer gets lost."""

    refunds: list[str] = attrs.field(factory=list)

    def refund(self, key: str) -> None:
        """Pay out, and lose the answer."""
        self.refunds.append(key)
        raise TimeoutError("no answer after 3 seconds")


def run(path: str | os.PathLike[str], say: Callable[[str], None], signer: Signer | None = None) -> bool:
    """Play the demonstration in a new store at ``path``; ``say`` gets one line at a time.

    Returns whether the history verifies at the end. Raises ConflictError if ``path`` exists, and what opening a store
    raises.
    """
    if Path(path).exists():
        raise ConflictError(f"{path}: there is a file already, the demo makes its own; remove it or name another path")
    with open_store(path, signer=signer, actor="demo-agent") as store:
        say(f"A new store at {path}. An agent works on {LINEAGE}; each step is committed.")
        task = _work(store, say)
        planner, executor = _join(store, task)
        _definition(task, say)
        _compaction(task, planner, executor, say)
        _rollback(task, say)
        _fork(task, say)
    with open_store(path, create=False, signer=signer) as store:
        good = _verify(store, say)
    _altered(path, signer, say)
    say("")
    say(f"Look inside:  python -m cpstore inspect {path}")
    return good


def _work(store: Store, say: Callable[[str], None]) -> Lineage:
    task = store.lineage(LINEAGE)
    messages: list[dict[str, str]] = []
    for step, (role, content) in enumerate(TALK, 1):
        messages.append({"role": role, "content": content})
        done = task.commit({"messages": messages}, step=step, define=[TIMEOUT] if step == 1 else ())
        say(f"   {LINEAGE}@{done.revision}  {role}: {content}")
    held = task.glossary().bindings[0]
    say(f"   Locked by the {held.authority.value}: {held.symbol!r} is the {held.definition}, {held.constraint}.")
    return task


def _join(store: Store, task: Lineage) -> tuple[Peer, Peer]:
    board = store.ledger(LEDGER)
    planner, executor = board.join("planner"), board.join("executor", lineage=task)
    planner.write(LINEAGE, {"state": "approved", "cents": 990})
    executor.read(LINEAGE)
    return planner, executor


def _definition(task: Lineage, say: Callable[[str], None]) -> None:
    say("")
    say("1. THE CONTEXT IS COMPACTED, and the summary has lost the unit: the glossary it declares is empty.")
    head, state = task.head().revision, _compacted(3000)
    _refused(SemanticDriftError, lambda: task.compact(state, summary="/messages/0", glossary=Glossary(())), say)
    _unchanged(task, head, say)
    order = Directive(Authority.USER, "message 6", "from now on give the timeout in seconds: 3")
    messages = [*task.load()["messages"], {"role": "user", "content": order.text}]
    done = task.commit({"messages": messages}, step=6, supersede=[Supersession(SECONDS, order)])
    say(f"-> The user decides, and the order is signed with it: {LINEAGE}@{done.revision}, now in seconds.")


def _compaction(task: Lineage, planner: Peer, executor: Peer, say: Callable[[str], None]) -> None:
    say("")
    say("2. A STALE WRITE. The compaction, its lock kept, is accepted. A planner shares a ledger with the")
    say("   agent, hears of it and changes an entry; the agent writes what its summary remembers.")
    seen = executor.read(LINEAGE)
    done = task.compact(_compacted(3), summary="/messages/0", glossary=task.glossary(), tokens_before=210)
    told = planner.poll()[-1]
    say(f"   The planner is told: {told.text} ({LINEAGE}@{done.revision})")
    planner.ack(told.position)
    planner.write(LINEAGE, {"state": "approved", "cents": 495, "note": "half was refunded by hand"}, seen=seen)
    _refused(PeerReadOnlyError, lambda: executor.write(LINEAGE, {"state": "refunding", "cents": 990}, seen=seen), say)
    executor.revalidate(executor.read_all())
    now = executor.read(LINEAGE)
    say(f"-> It reads again, finds {now.value['cents']} cents ({now.value['note']}), and may write:")
    now = executor.write(LINEAGE, {"state": "refunding", "cents": now.value["cents"]}, seen=now)
    say(f"   {LEDGER}/{LINEAGE} has revision {now.revision}: {json.dumps(now.value)}")


def _rollback(task: Lineage, say: Callable[[str], None]) -> None:
    say("")
    say("3. A ROLLBACK. The agent refunds, the gateway's answer gets lost, and the agent wants to start over.")
    good, gateway = task.head().revision, Gateway()
    asked: dict[str, Any] = {"order": 17, "cents": 495}
    try:
        with task.effect(EFFECT, asked, key="order 17", policy=EffectPolicy.AT_MOST_ONCE) as refund:
            gateway.refund(refund.key)
    except TimeoutError as error:
        say(f"   {EFFECT} {json.dumps(asked)}: {error}. Was it paid? Nobody knows.")
    lost = task.load()
    lost["messages"].append({"role": "assistant", "content": "The refund failed. I start over."})
    task.commit(lost, step=7)
    _refused(UnsafeRollbackError, lambda: task.restore(good), say)
    (doubt,) = task.effects(in_doubt=True)
    why = "the statement lists receipt R-7"
    task.reconcile(doubt, happened=True, who="accounting", why=why, result={"receipt": "R-7"})
    done = task.restore(good)
    say(f"-> Accounting looks: {why}. Reconciled, the rollback passes: {LINEAGE}@{done.revision}.")
    say("   The agent, who remembers nothing, refunds again:")
    again = task.begin(EFFECT, asked, key="order 17", policy=EffectPolicy.AT_MOST_ONCE)
    if again.fresh or len(gateway.refunds) != 1:
        raise DemoError("a refund would be paid twice")
    say(f"   not carried out, answered from the record: {json.dumps(again.outcome)}. Paid once.")


def _fork(task: Lineage, say: Callable[[str], None]) -> None:
    say("")
    say("4. A FORK AND A FORGER. A worker is forked; it shares the content and inherits the lock.")
    worker = task.fork(f"{LINEAGE}/worker-1")
    held = worker.glossary().bindings[0]
    say(f"   {worker.id}@1 knows {held.symbol!r}, {held.constraint}. As an agent it decides on milliseconds:")
    order = Directive(Authority.AGENT, "own plan", "milliseconds are easier to count")
    mine = Supersession(attrs.evolve(TIMEOUT, authority=Authority.AGENT), order)
    _refused(SemanticDriftError, lambda: worker.commit(worker.load(), step=8, supersede=[mine]), say)
    _unchanged(worker, 1, say)


def _verify(store: Store, say: Callable[[str], None]) -> bool:
    report = store.verify()
    for finding in report.findings:
        say(f"   {finding.severity}: {finding.text}")
    verdict = "good" if report.good else "DAMAGED"
    say(f"   All is recomputed from the bytes of the file, {report.entries} entries: {verdict}.")
    return report.good


def _altered(path: str | os.PathLike[str], signer: Signer | None, say: Callable[[str], None]) -> None:
    """Change the user's order in a copy of the file, and let verify look at that."""
    raw = Path(path).read_bytes()
    forged = raw.replace(b"unit: seconds", b"unit: minutes")
    if forged == raw:
        raise DemoError("the definition was not found in the file")
    say("   In a copy of it somebody turns 'unit: seconds' into 'unit: minutes', and verify looks again:")
    with tempfile.TemporaryDirectory(prefix="cpstore-demo-") as folder:
        copy = Path(folder, "copy.db")
        copy.write_bytes(forged)
        with open_store(copy, create=False, read_only=True, signer=signer) as store:
            report = store.verify()
    if report.good:
        raise DemoError("a forged file was found good")
    first = report.findings[0]
    say(f"   {first.severity}: {first.text}")
    say(f"-> {len(report.findings)} findings. The copy is thrown away; the original is untouched, and good.")


def _compacted(timeout: int) -> dict[str, Any]:
    return {"messages": [{"role": "system", "content": SUMMARY.format(timeout)}]}


def _refused(kind: type[CheckpointStoreError], act: Callable[[], object], say: Callable[[str], None]) -> None:
    try:
        act()
    except kind as error:
        for at, line in enumerate(str(error).splitlines()):
            say(f"   {'' if at else kind.__name__ + ': '}{line}")
        return
    raise DemoError(f"{kind.__name__} was expected")


def _unchanged(task: Lineage, head: int, say: Callable[[str], None]) -> None:
    now = task.head().revision
    if now != head:
        raise DemoError(f"{task.id} moved from revision {head} to {now}")
    say(f"   Nothing was written: {task.id} is still at revision {head}.")
