"""What all tests share: how hard Hypothesis looks.

``HYPOTHESIS_PROFILE=nightly python -m pytest`` looks fifty times harder.
"""

from __future__ import annotations

import os

from hypothesis import settings

# No deadline: other work on the machine is no defect of the code.
settings.register_profile("default", deadline=None)
settings.register_profile("nightly", deadline=None, max_examples=5_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
