"""The documents are true: README blocks run as printed, and what they name exists."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


@pytest.mark.parametrize("block", re.findall(r"```python\n(.*?)```", README, re.DOTALL))
def test_each_python_block_of_the_readme_runs(block, tmp_path):
    (tmp_path / "block.py").write_text(block, "utf-8")

    done = subprocess.run([sys.executable, "block.py"], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert ("milliseconds" in done.stdout) == ("SemanticDriftError" in block)


def test_the_readme_is_short():
    assert len(README.splitlines()) <= 150


@pytest.mark.parametrize(
    "page", [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=lambda p: p.name
)
def test_links_between_pages_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8"))

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_levels_of_the_architecture_page_are_those_that_are_enforced():
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    names = {
        path.stem for path in (ROOT / "cpstore").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }

    assert [name for name in sorted(names - {"__init__", "__pycache__", "demo", "replay"}) if name not in page] == []
