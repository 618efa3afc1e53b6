"""What every suite shares: the Hypothesis profiles.

`commit` is short and the same on every run, so that a failure belongs to the change under test.
`nightly` is long and random; a failure prints the blob that reproduces it. Choose by
`HYPOTHESIS_PROFILE=nightly`. Tests run in random order (pytest-randomly prints the seed).
"""

import os

from hypothesis import HealthCheck, settings

# A loaded machine makes any deadline a lie; time is measured by benchmarks, not by properties.
settings.register_profile(
    "commit",
    max_examples=60,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "nightly",
    max_examples=5_000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "commit"))
