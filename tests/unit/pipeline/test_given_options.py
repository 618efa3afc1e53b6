"""Options as Spark hands them on: flags, and names that are nearly right."""

import pytest

from tidelog.pipeline.errors import OptionError
from tidelog.pipeline.given_options import flag, in_lower_case, require_no_slips

KNOWN = ("includeHeaders", "topic")


@pytest.mark.parametrize(("text", "meaning"), [("true", True), ("FALSE", False), ("True", True)])
def test_flag_is_true_or_false_in_any_case(text: str, meaning: bool) -> None:
    given = in_lower_case({"includeHEADERS": text})
    assert flag(given, "includeHeaders", default=not meaning) is meaning


@pytest.mark.parametrize("default", [True, False])
def test_flag_that_is_not_given_is_its_default(default: bool) -> None:
    assert flag({}, "includeHeaders", default=default) is default


def test_flag_that_is_neither_is_shown_as_it_was_given() -> None:
    with pytest.raises(OptionError, match="includeHeaders is 'Yes' but must be true or false"):
        flag({"includeheaders": "Yes"}, "includeHeaders", default=False)


def test_slip_is_told_from_the_option_that_was_meant() -> None:
    with pytest.raises(OptionError, match="includeheader is no option; includeHeaders is one"):
        require_no_slips({"includeheader": "true"}, KNOWN)


@pytest.mark.parametrize("name", ["includeheaders", "mergeschema", "kafka.topics"])
def test_known_and_foreign_options_are_no_slips(name: str) -> None:
    require_no_slips({name: ""}, KNOWN)
