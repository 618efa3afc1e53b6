"""Paths of the coordinator's tree."""

import pytest

from tidelog.coordination.paths import ROOT, ancestors, is_well_formed, join, split


@pytest.mark.parametrize(
    ("path", "parent", "name"), [("/a", "/", "a"), ("/a/b", "/a", "b"), ("/a/b/c", "/a/b", "c")]
)
def test_split_and_join_undo_each_other(path: str, parent: str, name: str) -> None:
    assert split(path) == (parent, name)
    assert join(parent, name) == path


@pytest.mark.parametrize("path", ["", "a", "/a/", "//", "/a//b", "a/b"])
def test_a_malformed_path_is_a_bug(path: str) -> None:
    assert not is_well_formed(path)
    with pytest.raises(AssertionError):
        split(path)


def test_the_root_is_nobodys_child() -> None:
    assert is_well_formed(ROOT)
    with pytest.raises(AssertionError):
        split(ROOT)


def test_ancestors_come_outermost_first() -> None:
    assert ancestors("/a/b/c") == ["/a", "/a/b"]
    assert ancestors("/a") == []
