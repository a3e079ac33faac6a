"""What all tests share: how hard Hypothesis looks.

``HYPOTHESIS_PROFILE=nightly python -m pytest`` looks fifty times harder.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# No deadline: other work on the machine is no defect of the code.
settings.register_profile("default", deadline=None)
settings.register_profile("nightly", deadline=None, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session", autouse=True)
def own_home(tmp_path_factory):
    """Keep the user's own key and data folder out of the tests."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("XDG_DATA_HOME", str(home / "data"))
        patch.delenv("CPSTORE_KEY", raising=False)
        yield home
