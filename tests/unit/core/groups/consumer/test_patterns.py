"""Regular expressions that consumers subscribe with, beside Python's where the two agree."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.base.errors import ErrorCode, RequestRefused
from tidelog.core.groups.consumer import patterns
from tidelog.core.groups.consumer.pattern_parser import OneOf
from tidelog.core.groups.consumer.patterns import Pattern

_LETTERS = str.maketrans("0123456789", "abcdefghij")
_NAMES = st.text("ab-_1", max_size=8)


def _expressions() -> st.SearchStrategy[str]:
    """Expressions that mean the same in Python, small enough for it to take them."""
    atoms = st.sampled_from(
        ["a", "b", "-", r"\.", ".", r"\w", r"\d", r"\W", "[ab]", "[^a]", "[a-b1]", "^", "$", r"\b"]
    )
    return st.recursive(
        atoms,
        lambda inner: st.one_of(
            st.builds("({}|{})".format, inner, inner),
            st.builds("{}{}".format, inner, inner),
            st.builds("(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}"])),
        ),
        max_leaves=6,
    )


@given(expression=_expressions(), name=_NAMES)
def test_an_expression_matches_what_python_says_it_matches(expression: str, name: str) -> None:
    """R1"""
    assert Pattern(expression).matches(name) == bool(re.fullmatch(expression, name))


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("orders", "orders"),
        ("(?i)ORDERS", "orders"),
        ("(?i:OR)ders", "orders"),
        ("(?i)or(?-i)ders", "ORders"),
        (r"\Qa.b\E.*", "a.b-c"),
        (r"\Qa.b", "a.b"),
        ("[[:alpha:]]+", "orders"),
        ("[[:^digit:]]+", "orders"),
        (r"[\d.]+", "1.2"),
        (r"[\D]+", "orders"),
        (r"[\w-]+", "a-b"),
        ("[]a]+", "a]"),
        ("(?P<name>a)b", "ab"),
        ("(?<name>a)b", "ab"),
        (r"\x61\x{62}", "ab"),
        ("a{,2}", "a{,2}"),
        ("a*?b", "aab"),
        (r"\Aa\z", "a"),
        ("", ""),
        ("|a", "a"),
        ("(?s:.)", "a"),
    ],
)
def test_what_re2_means_is_meant_here(expression: str, name: str) -> None:
    assert Pattern(expression).matches(name)
    assert not Pattern(expression).matches(name + "\n1")


@pytest.mark.parametrize(
    "expression",
    [
        "(", ")", "a)", "[", "[a", "[b-a]", "*", "a**", "a{2}{3}", "a{1001}", "a{3,2}", "a{2,1001}",
        r"\1", r"(a)\1", "(?=a)", "(?!a)", "(?<=a)", "(?P<1>a)", "(?P<n", "(?#a)", "\\",
        r"\x", r"\xg1", r"\x{110000}", r"\x{}", "[[:nothing:]]", "[a-", r"[a-\d]", "(?", "(?x)",
        r"\k",
        "(" * 200 + ")" * 200,
        "((a{100}){100}){100}",
        "((((){1000}){1000}){1000}){1000}",
        "((()()){1000}){1000}",
    ],
)  # fmt: skip
def test_what_re2_refuses_is_refused(expression: str) -> None:
    """R2"""
    with pytest.raises(RequestRefused) as refused:
        Pattern(expression)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@given(st.text("ab[]()|*+?{}^$\\.-,:123<>PQEixs=!", max_size=12))
def test_any_text_is_an_expression_or_refused(expression: str) -> None:
    with suppress(RequestRefused):
        Pattern(expression).matches("a-b")


def test_an_expression_that_would_take_python_for_ever_takes_a_moment() -> None:
    """(a*)*b over a name without b doubles Python's time with each character."""
    pattern = Pattern("(a*)*(a|aa)+(a?){50}b")
    assert not pattern.matches("a" * 249)
    assert pattern.matches("a" * 248 + "b")


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patterns, "REMEMBERED_MAX", 4)
    pattern = Pattern("[a-z]+-[0-9]+")
    names = [f"orders-{number}" for number in range(20)]
    assert pattern.matching([*names, "orders"]) == frozenset(names)
    assert len(pattern._next) <= 4


def test_matching_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """R3"""
    monkeypatch.setattr(patterns, "VISITS_MAX", 20_000)
    pattern = Pattern("([a-z]?){500}x")
    names = [f"{number:03}".translate(_LETTERS) * 60 for number in range(50)]
    with pytest.raises(RequestRefused, match="too long"):
        pattern.matching(names)
    assert Pattern("[a-z]+").matching(names) == frozenset(names)


def test_sets_of_many_characters_cost_what_they_are_looked_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """R3: a set is looked through once for each character, however often it is repeated."""
    compared: list[str] = []
    holds = OneOf.holds

    def counted(one: OneOf, character: str) -> bool:
        compared.append(character)
        return holds(one, character)

    monkeypatch.setattr(OneOf, "holds", counted)
    unwanted = "".join(chr(0x100 + 2 * number) for number in range(1_000))
    pattern = Pattern(f"[^{unwanted}]{{0,99}}")
    assert pattern.matching(["orders", "red"]) == {"orders", "red"}
    assert sorted(compared) == sorted(set("orders"))


def test_sets_too_large_to_be_looked_through_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """R3"""
    monkeypatch.setattr(patterns, "VISITS_MAX", 2_000)
    sets = "".join(f"[^{chr(0x100 + number)}{'x' * 1_000}]?" for number in range(20))
    with pytest.raises(RequestRefused, match="too long"):
        Pattern(sets).matching(["orders", "returns", "payments"])


def test_ten_thousand_topics_are_matched_in_bounded_time() -> None:
    """R3: whatever the expression, within the visits that are allowed."""
    names = [f"team-{number % 97}.orders-{number}" for number in range(10_000)]
    found = Pattern(r"team-[0-9]{1,2}\.(orders|returns)-.*5").matching(names)
    assert len(found) == 1_000
