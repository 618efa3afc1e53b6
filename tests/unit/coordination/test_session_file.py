"""A session is alive while its lock is held and its lease is ahead (C1)."""

from pathlib import Path

from tidelog.coordination.session_file import SessionFile, SessionProbe, monotonic_ms


def test_a_held_session_looks_alive_to_others_of_the_same_process(tmp_path: Path) -> None:
    session = SessionFile(
        tmp_path / "1", session_timeout_ms=60_000, heartbeat_interval_ms=60_000 // 4
    )
    probes = [SessionProbe(tmp_path / "1") for _ in range(2)]
    for probe in probes:
        assert not probe.is_unlocked()
        assert not probe.is_overdue(monotonic_ms())
        probe.close()
    session.close()


def test_a_closed_session_is_dead_and_leaves_no_file(tmp_path: Path) -> None:
    session = SessionFile(
        tmp_path / "1", session_timeout_ms=60_000, heartbeat_interval_ms=60_000 // 4
    )
    early = SessionProbe(tmp_path / "1")
    session.close()
    late = SessionProbe(tmp_path / "1")
    for probe in (early, late):
        assert probe.is_unlocked()
        probe.close()
    assert list(tmp_path.iterdir()) == []


def test_a_lease_that_is_not_renewed_runs_out(tmp_path: Path) -> None:
    session = SessionFile(
        tmp_path / "1", session_timeout_ms=60_000, heartbeat_interval_ms=60_000 // 4
    )
    probe = SessionProbe(tmp_path / "1")
    assert not probe.is_overdue(monotonic_ms() + 59_000)
    assert probe.is_overdue(monotonic_ms() + 60_001)
    probe.close()
    session.close()


def test_a_lease_may_be_relied_on_until_it_ends(tmp_path: Path) -> None:
    session = SessionFile(tmp_path / "1", session_timeout_ms=60_000, heartbeat_interval_ms=59_000)
    assert session.is_reliable(59_000)
    assert not session.is_reliable(60_000)
    session.close()


def test_a_lease_that_is_renewed_too_late_counts_when_it_is_confirmed(tmp_path: Path) -> None:
    """As in a process that was stopped: somebody may have seen that it was over."""
    session = SessionFile(tmp_path / "1", session_timeout_ms=0, heartbeat_interval_ms=1)
    probe = SessionProbe(tmp_path / "1")
    while not probe.is_overdue(monotonic_ms()):
        continue  # Ends: the clock goes on.
    lease_end_ms = session.renew() + 60_000
    assert not session.is_reliable(0)
    session.on_confirmed(lease_end_ms)
    assert session.is_reliable(0)
    probe.close()
    session.close()


def test_a_session_without_a_file_is_dead(tmp_path: Path) -> None:
    probe = SessionProbe(tmp_path / "absent")
    assert probe.is_unlocked()
    assert probe.is_overdue(monotonic_ms())
    probe.close()


def test_a_file_without_a_lease_is_judged_by_its_lock(tmp_path: Path) -> None:
    (tmp_path / "new").touch()
    probe = SessionProbe(tmp_path / "new")
    assert not probe.is_overdue(monotonic_ms())
    assert probe.is_unlocked()
    probe.close()
