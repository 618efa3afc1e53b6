"""A broker runs under the malloc settings it needs, and starts itself again at most once."""

from tidelog.lab.launch import (
    GUARD,
    MALLOC_SETTINGS,
    broker_command,
    broker_environment,
    needs_relaunch,
)


def test_bare_environment_needs_a_relaunch() -> None:
    assert needs_relaunch({"PATH": "/bin"})


def test_relaunched_broker_is_not_relaunched() -> None:
    assert not needs_relaunch(broker_environment({"PATH": "/bin"}))


def test_lost_settings_do_not_make_a_loop() -> None:
    assert not needs_relaunch({GUARD: "1"})


def test_settings_that_are_all_there_need_no_relaunch() -> None:
    assert not needs_relaunch(MALLOC_SETTINGS)


def test_environment_of_a_broker_holds_the_malloc_settings() -> None:
    environment = broker_environment({"PATH": "/bin"})
    assert environment["PATH"] == "/bin"
    assert environment["MALLOC_TRIM_THRESHOLD_"] == "536870912"
    assert environment["MALLOC_MMAP_THRESHOLD_"] == "536870912"
    assert environment["MALLOC_TOP_PAD_"] == "33554432"


def test_what_the_operator_set_is_kept() -> None:
    assert broker_environment({"MALLOC_TOP_PAD_": "1"})["MALLOC_TOP_PAD_"] == "1"


def test_folder_named_tidelog_is_not_taken_for_the_package() -> None:
    assert "-P" in broker_command("server.properties")
