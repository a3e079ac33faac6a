"""Measure everything beside the peer in one run and print one table: ``python -m benchmarks [--quick]``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks import acts, divergence, sizes, speeds
from benchmarks.measure import Row, machine, table
from benchmarks.peers import MISSING, langgraph_installed
from benchmarks.stores import Ground


def main() -> int:
    """Run the measures that were asked for; return 1 if a bar was missed."""
    asked = _arguments()
    print(machine(), file=sys.stderr)
    if not langgraph_installed():
        print(f"no peer: {MISSING}", file=sys.stderr)
    began, rows = time.monotonic(), list[Row]()
    for name, measure in _measures(asked.quick, asked.traces).items():
        if asked.only and name not in asked.only:
            continue
        with tempfile.TemporaryDirectory(prefix="cpstore-bench-", dir=asked.dir) as folder:
            os.sync()
            at = time.monotonic()
            rows += measure(Ground(Path(folder)))
            print(f"{name}: {time.monotonic() - at:.0f} s", file=sys.stderr, flush=True)
    print(table(rows))
    print(f"\n{machine()}; medians with the 10th to 90th percentile; {time.monotonic() - began:.0f} s in all")
    if asked.json:
        value = {"machine": machine(), "quick": asked.quick, "rows": [row.to_value() for row in rows]}
        asked.json.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")
    return 1 if any(row.good is False for row in rows) else 0


def _measures(quick: bool, traces: Path | None) -> dict[str, Callable[[Ground], list[Row]]]:
    found: dict[str, Callable[[Ground], list[Row]]] = {
        "edits": lambda ground: speeds.edits(ground, 60 if quick else 200),
        "commits": lambda ground: speeds.commits(ground, 30 if quick else 100),
        "loads": lambda ground: speeds.loads(ground, 9 if quick else 31),
        "effects": lambda ground: acts.effects(ground, 60 if quick else 300),
        "divergence": lambda ground: divergence.incidents(ground, 1000 if quick else 10_000, 20 if quick else 200),
        "plans": lambda ground: acts.plans(ground, 21, 5_000 if quick else 100_000),
        "opening": lambda ground: speeds.opening(ground, 16 if quick else 20, 10_000 if quick else 100_000),
        "fixed": sizes.fixed,
        "shared": lambda ground: sizes.shared(ground, quick=quick),
        "fleet": lambda ground: sizes.fleet(ground, quick=quick),
    }
    if traces is not None:
        found["traces"] = lambda ground: sizes.traces(ground, traces)
    # Last, since the peer writes gigabytes here, which the disk would still be busy with under the next measure.
    return {**found, "session": lambda ground: sizes.session(ground, quick=quick)}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller stores and fewer rounds: under two minutes")
    parser.add_argument(
        "--only", nargs="+", metavar="MEASURE", choices=_measures(True, Path()), help="only these measures"
    )
    parser.add_argument("--traces", type=Path, metavar="DIR", help="also replay the recorded runs in this folder")
    parser.add_argument(
        "--dir", type=Path, help="where the stores are written (default: the system's temporary folder)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file as well")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
