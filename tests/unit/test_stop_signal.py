"""Stopping: once is graceful, twice is forceful, and whoever sleeps wakes up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

from penstock.engine.stop import StopSignal

LONG = 3600.0


def test_nothing_is_requested_at_the_start() -> None:
    stop = StopSignal()
    assert (stop.requested, stop.forced) == (False, False)
    assert not stop.overdue(0)


def test_the_first_request_is_graceful_and_the_second_forceful() -> None:
    stop = StopSignal()
    stop.request()
    assert (stop.requested, stop.forced) == (True, False)
    stop.request()
    assert (stop.requested, stop.forced) == (True, True)
    stop.request()
    assert (stop.requested, stop.forced) == (True, True)


def test_force_needs_no_request_before_it() -> None:
    stop = StopSignal()
    stop.force()
    assert (stop.requested, stop.forced) == (True, True)


def test_a_stop_is_overdue_only_when_it_was_requested_and_the_deadline_has_passed() -> None:
    stop = StopSignal()
    assert not stop.overdue(-LONG)
    stop.request()
    assert stop.overdue(-LONG)
    assert not stop.overdue(LONG)
    forced = StopSignal()
    forced.force()
    assert forced.overdue(-LONG)


def test_the_deadline_counts_from_the_first_request() -> None:
    stop = StopSignal()
    stop.request()
    first = stop._requested_at
    stop.request()
    stop.force()
    assert stop._requested_at == first


def test_a_sleeper_wakes_up_when_a_stop_is_requested() -> None:
    stop = StopSignal()
    sleeper = threading.Thread(target=stop.sleep, args=(LONG,), daemon=True)
    sleeper.start()
    stop.request()
    sleeper.join(30)
    assert not sleeper.is_alive()


def test_a_sleep_after_the_request_does_not_sleep() -> None:
    stop = StopSignal()
    stop.force()
    stop.sleep(LONG)


def test_one_stop_does_not_stop_another() -> None:
    one, other = StopSignal(), StopSignal()
    one.force()
    assert not other.requested


CHILD = """
import signal, time
from penstock.engine.stop import StopSignal
stop = StopSignal()
signal.signal(signal.SIGTERM, lambda *_: stop.request())
print("ready", flush=True)
stop.sleep(3600)
print("graceful", stop.forced, flush=True)
while not stop.forced:
    time.sleep(0.01)
print("forceful", flush=True)
"""


def test_requests_from_a_signal_handler_arrive() -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "ready\n"
            os.kill(child.pid, signal.SIGTERM)
            assert child.stdout.readline() == "graceful False\n"
            os.kill(child.pid, signal.SIGTERM)
            assert child.stdout.readline() == "forceful\n"
        finally:
            child.kill()
