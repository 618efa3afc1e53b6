"""What the kernel says about the other end of a connection, in its two ways to say it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.lab.network.socket_inodes import (
    NOBODYS,
    Caller,
    decode_answer,
    encode_question,
    find_inode,
)

CALLER = Caller("127.0.0.1", 40_000, "127.0.0.1", 12_001)
ENTRY = "{:4}: {} {} 01 00000000:00000000 00:00000000 00000000  1000        0 {} 1 0000 20 4 30\n"
# 127.0.0.1:12001, on a machine with its bytes in the usual order.
LISTENER = "0100007F:2EE1"
MAPPED = "0000000000000000FFFF00000100007F"
TABLE = "".join(
    (
        ENTRY.format(0, LISTENER, "00000000:0000", 77),
        ENTRY.format(1, "0100007F:9C40", "0100007F:2EE2", 99),
        ENTRY.format(2, LISTENER, "0100007F:9C40", 98),
        ENTRY.format(3, "0100007F:9C40", LISTENER, 100),
        ENTRY.format(4, "0100007F:9C42", LISTENER, 0),
        ENTRY.format(5, f"{MAPPED}:9C43", f"{MAPPED}:2EE1", 101),
    )
).encode()


@pytest.mark.parametrize(
    ("port", "listen_port", "inode"),
    [
        (40_000, 12_001, 100),
        (40_000, 12_002, 99),
        (40_001, 12_001, None),
        (40_002, 12_001, NOBODYS),
        (40_003, 12_001, 101),
        (12_001, 40_000, 98),
    ],
)
def test_inode_in_a_table_is_that_of_both_addresses(
    port: int, listen_port: int, inode: int | None
) -> None:
    assert find_inode(TABLE, Caller("127.0.0.1", port, "127.0.0.1", listen_port)) == inode


def test_empty_table_knows_nobody() -> None:
    assert find_inode(b"", CALLER) is None


# As linux/inet_diag.h lays them out, on a machine with its bytes in the usual order. That Linux
# agrees is shown by tests/integration/test_lab_network.py.
QUESTION = bytes.fromhex(
    "48000000" "1400" "0100" "01000000" "00000000"
    "02060000" "ffffffff"
    "9c40" "2ee1" "7f000001000000000000000000000000" "7f000001000000000000000000000000"
    "00000000" "ffffffffffffffff"
)  # fmt: skip
ANSWER = bytes.fromhex(
    "58000000" "1400" "0000" "01000000" "00000000"
    "02010000"
    "9c40" "2ee1" "7f000001000000000000000000000000" "7f000001000000000000000000000000"
    "00000000" "0110000000000000"
    "00000000" "00000000" "00000000" "e8030000" "1c437c00"
)  # fmt: skip
NO_SUCH_SOCKET = bytes.fromhex("14000000020000000100000000000000feffffff") + QUESTION


def test_question_is_in_the_form_of_sock_diag() -> None:
    assert encode_question(CALLER) == QUESTION


def test_answer_holds_the_inode() -> None:
    assert decode_answer(ANSWER, CALLER) == 0x7C431C


def test_answer_that_there_is_none_holds_no_inode() -> None:
    assert decode_answer(NO_SUCH_SOCKET, CALLER) is None


def test_answer_about_another_socket_is_not_believed() -> None:
    """Who listens at the port of a connection that is no more."""
    assert decode_answer(ANSWER, Caller("127.0.0.1", 40_000, "127.0.0.1", 12_002)) is None


@given(st.binary(max_size=120))
def test_answer_of_any_bytes_is_none_or_a_number(answer: bytes) -> None:
    inode = decode_answer(answer, CALLER)
    assert inode is None or inode >= 0
