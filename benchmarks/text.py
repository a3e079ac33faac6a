"""Text like that of working agents, made from a seed: what the size measures compress.

Random letters would break any bar and repeated text would pass any, so the text is fixed and published here. Words,
templates and names were written for this file; nothing is copied. What was matched is how well it compresses:

| compact JSON of the messages, compressed | recorded agent runs | ``messages(3000)`` |
|---|---|---|
| 1 KB alone, zstd -19 | 2.1 to 3.7 | 1.8 |
| frames of 128 messages, zstd -3 | 3.7 to 6.6, one file 10.4 | 3.7 |
| all of it, zstd -19 | 9 to 24 (runs that repeat each other) | 5.7 |

So it compresses no better than what agents really write, and gains less from a long memory. The recorded runs are the
seven files of the measure "recorded runs" in README.md. ``python -m benchmarks.text`` prints the right column.
"""

from __future__ import annotations

import bisect
import itertools
import json
import math
import random
from collections.abc import Iterator
from typing import Any


def _words(text: str) -> list[str]:
    return text.split()


_NOUNS = _words("""
order request file test function record customer account ticket report line value field module branch address
payment invoice window session result table column query index option region service policy refund booking
passenger flight seat bag token limit budget deadline schema migration handler worker queue message parser
header response server cluster node deploy rollback release version patch diff commit review comment change
config setting default timeout retry error warning exception trace log metric alert dashboard threshold sample
batch job task step plan summary note source target input output argument parameter return type object list
key pair entry cache memory disk page block buffer stream socket client host port path folder archive backup
snapshot checkpoint history state rule check guard lock owner role permission group user team manager vendor
supplier warehouse shipment carrier item quantity price discount currency total balance statement ledger
transfer deposit fee charge card certificate domain record zone route gateway proxy balancer container image
volume mount secret variable environment build artifact pipeline stage runner suite fixture assertion coverage
benchmark profile hotspot loop condition branch expression question answer reason evidence assumption decision
risk estimate date hour minute weekday calendar meeting reminder document section paragraph sentence title
figure appendix citation draft template form page button link menu screen event trigger callback signal thread
process lease heartbeat timer clock interval range offset cursor boundary edge matrix vector tensor layer
weight gradient epoch dataset label feature column median outlier histogram residual
""")
_VERBS = _words("""
check read update open find verify compare create remove add run fix change inspect confirm cancel search list
load write call return parse split merge move rename keep drop replace restore collect count measure explain
reproduce isolate revert apply review test build deploy schedule notify refund charge issue assign close
reopen validate normalise convert encode decode sort filter group join extract fetch query insert delete mark
record summarise repeat skip retry stop start resume trace profile tune limit raise lower extend shorten align
pin upgrade downgrade install configure enable disable mount export import archive compress sign approve
reject escalate
""")
_ADJECTIVES = _words("""
new old first last same next previous current missing wrong empty full large small single second whole local
remote public private stale fresh valid invalid open closed pending failed successful optional required unique
duplicate partial complete slow fast early late daily weekly internal external temporary permanent original
updated expected actual relevant related affected unused nested flat sorted ordered random stable broken
correct safe unsafe shared separate explicit implicit default custom minimal extra remaining available basic
economy regular premium
""")
_ADVERBS = _words("""
now again first still already only also directly instead here then therefore probably clearly exactly safely
once twice later before afterwards carefully quickly separately together explicitly currently finally
""")
_PREPOSITIONS = _words("""
in for from with after before without inside near behind under between across during through
""")
_FAMILY = _words("""
Okafor Lindqvist Moreau Tanaka Abreu Novak Haddad Byrne Kowalska Silva Petrov Nakamura Osei Fischer Marchetti
Dvorak Rahman Larsen Iyer Costa Weber Quinn Baptiste Sorensen Mbeki Varga Castillo Yilmaz Horvat Nguyen
""")
_GIVEN = _words("""
Amara Ilse Jules Kenji Livia Marek Nadia Oona Pavel Rosa Samir Tove Ugo Vera Wanda Yuki Zofia Bruno Celia
Dmitri Elif Farid Greta Hugo Ines
""")
_PARTS = _words("""
auth cart core data feed form grid hash item json kind link list math meta node note page path plan pool port
post rank rate rule scan seed sign slot sort span stat step sync task term test text time tree type unit user
view wire work zone batch block cache chain chart check chunk clock codec count cycle delta draft event field
frame graph group guard image index input label layer limit match merge model mount order parse patch phase
point price probe proxy query queue range retry route scale scope score shape share shift slice stage state
store style table token trace track value watch width write
""")
_ENDINGS = [".py", ".py", ".py", ".ts", ".go", ".json", ".md", ".yaml", ".sql", ".txt"]

_SENTENCES = [
    s.strip()
    for s in """
The {adj} {noun} {prep} {ident} is {adj}, so I will {verb} the {noun} {adv}.
I need to {verb} the {noun} before we {verb} anything else in {path}.
Let me {verb} the {adj} {noun} and see whether the {noun} is still {adj}.
It looks like {ident} does not {verb} the {noun} when the {noun} is {adj}.
The {noun} says {number}, but the {adj} {noun} {prep} the {noun} says {number}.
Could you {verb} the {noun} for {person}? The {noun} should be {adj} by {day}.
According to the {noun}, {person} has a {adj} {noun} with id {hex}.
I have {verbed} the {noun}; the {adj} {noun} is now {number} and the {noun} is {adj}.
Next I will {verb} {path} to find out where the {noun} of the {noun} is {verbed}.
We cannot {verb} a {adj} {noun} without the {noun}, which is why the {noun} {prep} {ident} failed.
Please do not {verb} the {noun} until I have {verbed} the {adj} {noun}.
There are two options: {verb} the {adj} {noun}, or {verb} the {noun} {prep} the {noun} and {verb} it {adv}.
The change in {ident} is small: it {verbs} the {noun} and leaves the {noun} as it was.
That explains the {adj} {noun}: {ident} {verbs} the {noun} {prep} the {noun} {adv}.
The policy allows us to {verb} a {adj} {noun} only if the {noun} was {verbed} within {number} hours.
To be sure, I {verbed} all {number} {noun}s; {number} of them are {adj} and the rest are {adj}.
If the {noun} is {adj}, {ident} should {verb} the {noun}; otherwise it must {verb} the {adj} {noun}.
Before I go on I want to confirm three things: the {noun}, the {adj} {noun} and the {noun} {prep} {path}.
{person} asked us to {verb} the {noun} and to {verb} the {adj} {noun} {prep} the {noun}.
My assumption is that the {noun} {prep} {ident} was never {verbed}, because the {noun} is {adj} {adv}.
""".strip().splitlines()
]
_TOOLS = ["read_file", "search", "run_tests", "get_order", "update_record", "list_items", "shell", "apply_patch"]
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "noon", "tomorrow", "the end of the week"]


class Writer:
    """One agent's voice: draws words by rank, and comes back to the names and ids that it has used."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._clock = 1_760_000_000 + self._random.randrange(10_000_000)
        self._said = 0
        self._known: dict[str, list[str]] = {}
        self._ranks: dict[int, list[float]] = {}
        self._kinds = {
            "noun": _NOUNS,
            "verb": _VERBS,
            "adj": _ADJECTIVES,
            "adv": _ADVERBS,
            "prep": _PREPOSITIONS,
            "day": _DAYS,
        }

    def text(self, size: int, role: str) -> str:
        """Return exactly ``size`` ASCII characters of what someone in that role says."""
        if role == "user":
            parts = [self._prose(size)]
        elif role == "assistant":
            parts = [self._prose(size * 3 // 5), "\n\n", self._call(), "\n", self._prose(size)]
        else:
            parts = [self._random.choice((self._records, self._log, self._code, self._grep))(size)]
        return "".join(parts)[:size].ljust(size, ".")

    def token(self, digits: int = 12) -> str:
        """Return hex digits that were never used before."""
        return f"{self._random.getrandbits(4 * digits):0{digits}x}"

    def _word(self, words: list[str]) -> str:
        # Zipf's law, flattened at the top: the n-th word is drawn with weight 1 / (n + 4).
        ranks = self._ranks.get(len(words))
        if ranks is None:
            ranks = self._ranks[len(words)] = list(itertools.accumulate(1 / (n + 5) for n in range(len(words))))
        return words[bisect.bisect_left(ranks, self._random.random() * ranks[-1])]

    def _name(self, kind: str) -> str:
        # New names come ever more rarely, so that their number grows like a square root.
        self._said += 1
        known = self._known.setdefault(kind, [])
        if not known or self._random.random() < 9 / math.sqrt(self._said + 300):
            known.append(self._invent(kind))
            return known[-1]
        back = int(self._random.expovariate(1 / 12))
        return known[-1 - back] if back < len(known) and self._random.random() < 0.8 else self._random.choice(known)

    def _invent(self, kind: str) -> str:
        pick = self._random.choice
        if kind == "ident":
            return "_".join(pick(_PARTS) for _ in range(self._random.choice((2, 2, 3))))
        if kind == "path":
            return f"src/{pick(_PARTS)}/{pick(_PARTS)}_{pick(_PARTS)}{pick(_ENDINGS)}"
        if kind == "person":
            return f"{pick(_GIVEN)} {pick(_FAMILY)}"
        return f"{self._random.getrandbits(32):08x}"

    def _slot(self, slot: str) -> str:
        if slot in self._kinds:
            return self._word(self._kinds[slot])
        if slot == "number":
            return str(int(10 ** self._random.uniform(0, 4)))
        if slot in ("verbed", "verbs"):
            verb = self._word(_VERBS)
            return verb + ("s" if slot == "verbs" else "d" if verb.endswith("e") else "ed")
        return self._name(slot)

    def _sentence(self) -> str:
        pieces = self._word(_SENTENCES).split("{")
        return pieces[0] + "".join(
            self._slot(slot) + rest for slot, _, rest in (piece.partition("}") for piece in pieces[1:])
        )

    def _prose(self, size: int) -> str:
        told: list[str] = []
        while sum(map(len, told)) < size:
            told.append(self._sentence() + (" " if self._random.random() < 0.8 else "\n\n"))
        return "".join(told)[:size]

    def _call(self) -> str:
        arguments = {
            "path": self._name("path"),
            "query": self._slot("noun"),
            "limit": self._random.choice((10, 50, 200)),
        }
        call = {"name": self._word(_TOOLS), "id": "call_" + self.token(), "arguments": arguments}
        return json.dumps(call)

    def _time(self) -> str:
        self._clock += self._random.randrange(1, 90)
        minutes, seconds = divmod(self._clock, 60)
        hours, minutes = divmod(minutes, 60)
        days, hours = divmod(hours, 24)
        return f"2026-{1 + days // 28 % 12:02d}-{1 + days % 28:02d}T{hours:02d}:{minutes:02d}:{seconds:02d}Z"

    def _records(self, size: int) -> str:
        rows: list[str] = []
        while sum(map(len, rows)) < size:
            row = {
                "id": self._name("hex"),
                "owner": self._name("person"),
                "status": self._word(_ADJECTIVES),
                self._word(_NOUNS): self._sentence(),
                "updated_at": self._time(),
                "amount": self._random.randrange(100, 99_999),
            }
            rows.append(json.dumps(row))
        return "[" + ",\n ".join(rows)

    def _log(self, size: int) -> str:
        lines: list[str] = []
        while sum(map(len, lines)) < size:
            level = self._random.choice(("INFO", "INFO", "INFO", "WARNING", "ERROR"))
            lines.append(
                f"{self._time()} {level} {self._name('ident')}: {self._sentence()} ({self._slot('number')} ms)\n"
            )
        return "".join(lines)

    def _code(self, size: int) -> str:
        lines = [f"{self._name('path')}\n"]
        number = self._random.randrange(1, 400)
        while sum(map(len, lines)) < size:
            one, two, three = (self._name("ident") for _ in range(3))
            body = self._random.choice(
                (
                    f"    {one} = {two}.{self._word(_VERBS)}({three}, {self._word(_NOUNS)}=True)",
                    f"    if {one} is None or {two}.{self._word(_NOUNS)} != {three}:",
                    f'        raise ValueError(f"{self._sentence()}")',
                    f"def {one}({self._word(_NOUNS)}, {self._word(_NOUNS)}=None):",
                    f"    # {self._sentence()}",
                    f"    return {one}({two}, {self._word(_NOUNS)})",
                )
            )
            lines.append(f"{number:5d}  {body}\n")
            number += 1
        return "".join(lines)

    def _grep(self, size: int) -> str:
        lines: list[str] = []
        while sum(map(len, lines)) < size:
            where = f"{self._name('path')}:{self._random.randrange(1, 900)}"
            lines.append(
                f"{where}:    {self._name('ident')}({self._word(_NOUNS)}, {self._word(_NOUNS)})  # {self._sentence()}\n"
            )
        return "".join(lines)


def messages(count: int, size: int = 1024, seed: int = 7) -> list[dict[str, Any]]:
    """Return ``count`` messages of a session, of ``size`` characters of content each, the same for equal arguments."""
    writer = Writer(seed)
    return [_message(writer, number, size) for number in range(count)]


def tool_state(step: int) -> dict[str, Any]:
    """Return what an agent's tools remember at a step: 0.9 KB of JSON, of which 100 bytes or so change each step."""
    fixed = random.Random(11)
    moving = random.Random(1000 + step)
    tasks = [{"id": f"task-{n}", "title": f"{fixed.choice(_VERBS)} the {fixed.choice(_NOUNS)}"} for n in range(12)]
    for number, task in enumerate(tasks):
        task["state"] = "done" if step > 250 * number else "open"
    return {
        "budget": {"tokens_left": 2_000_000 - 613 * step, "calls": step, "seconds": 7 * step},
        "cursor": f"{moving.getrandbits(64):016x}",
        "last_tool": moving.choice(_TOOLS),
        "open_file": f"src/{fixed.choice(_PARTS)}/{_PARTS[step // 9 % len(_PARTS)]}.py",
        "tasks": tasks,
    }


def tool_database(size: int, seed: int = 3) -> dict[str, Any]:
    """Return a mapping of records, about ``size`` bytes of JSON together: a tool's database inside an agent's state."""
    writer = Writer(seed)
    users: dict[str, Any] = {}
    written = 0
    while written < size:
        record = {
            "name": writer._name("person"),
            "orders": [writer.token(8) for _ in range(3)],
            "note": writer.text(300, "user"),
            "balance": len(users) * 37 % 10_007,
        }
        users[f"user_{len(users):06d}"] = record
        written += len(json.dumps(record)) + 16
    return users


def agents(count: int, steps: int, seed: int = 7) -> Iterator[list[list[dict[str, Any]]]]:
    """Yield, for each of ``count`` agents, what each of its ``steps`` steps adds: one list of messages a step.

    Sizes are log-normal, as recorded steps are: p50 402 bytes, p90 2.6 KB, p99 11 KB of content.
    """
    for number in range(count):
        writer = Writer(seed * 1_000_003 + number)
        sizes = random.Random(seed * 1_000_003 + number)
        yield [
            [_message(writer, step, min(900_000, max(16, round(sizes.lognormvariate(math.log(402), 1.44)))))]
            for step in range(steps)
        ]


def _message(writer: Writer, number: int, size: int) -> dict[str, Any]:
    role = ("user", "assistant", "tool", "assistant", "tool", "assistant", "tool", "assistant")[number % 8]
    return {"id": "msg_" + writer.token(), "role": role, "content": writer.text(size, role)}


def main() -> None:
    """Print how well the text compresses."""
    import zstandard

    rows = [json.dumps(message, separators=(",", ":")).encode() for message in messages(3000)]
    whole = b"".join(rows)

    def packed(level: int, frames: list[bytes]) -> float:
        return sum(map(len, frames)) / sum(len(zstandard.ZstdCompressor(level=level).compress(f)) for f in frames)

    segments = [b"".join(rows[at : at + 128]) for at in range(0, len(rows), 128)]
    print(f"one KB alone, zstd -19: {packed(19, rows[:500]):.2f}")
    for level in (3, 19):
        print(f"frames of 128 messages, zstd -{level}: {packed(level, segments):.2f}")
    print(f"all of it, zstd -19: {packed(19, [whole]):.2f}")
    sizes = sorted(len(m["content"]) for agent in agents(100, 100) for step in agent for m in step)
    print("step sizes: " + ", ".join(f"p{q} {sizes[len(sizes) * q // 100]}" for q in (50, 90, 99)))


if __name__ == "__main__":
    main()
