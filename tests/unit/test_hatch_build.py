"""What an installation does to a broker that is running: nothing."""

from pathlib import Path

from hatch_build import module_name, put_in_place


def test_what_is_compiled_anew_does_not_change_under_a_running_broker(tmp_path: Path) -> None:
    """A library is mapped, not read: who writes over the file writes over running code."""
    folder = tmp_path / "broker"
    folder.mkdir()
    library = folder / "compiled.so"
    library.write_bytes(b"old code")
    compiled = tmp_path / library.name
    compiled.write_bytes(b"new")
    with library.open("rb") as running:
        put_in_place(compiled, folder)
        assert running.read() == b"old code"
    assert library.read_bytes() == b"new"
    assert [*folder.iterdir()] == [library]


def test_module_is_named_after_its_package_wherever_the_tree_is() -> None:
    source = Path("/home/somebody/tidelog/src/tidelog/records/_ids.pyx")
    assert module_name(source) == "tidelog.records._ids"
