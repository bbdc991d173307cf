"""Whose fault a report is."""

import pytest
import races

FRAMES = {
    "ours": "shared_load src/freethreading.h:60 (_core.cpython-313t-x86_64-linux-gnu.so+0xb9cb)",
    "header": "Py_INCREF include/python3.13t/object.h:800 (_core.cpython-313t-x86_64-linux-gnu.so+0xb9cb)",
    "libc": "memset ../sanitizer_common_interceptors.inc:799 (libtsan.so.2+0x5cbc4)",
    "known": "new_reference Objects/object.c:2464 (python3.13t+0x1e3d03)",
    "unknown": "PyTuple_New Objects/tupleobject.c:70 (python3.13t+0x23bf84)",
    "file": "<null> <null> (libc.so.6+0x23bf84)",
}


def log(*accesses, kind="data race"):
    headers = ["  Write of size 8 at 0x7f2202022b00 by thread T4:", "  Previous atomic read of size 8 at 0x7f by main thread:"]
    text = f"==================\nWARNING: ThreadSanitizer: {kind} (pid=4431)\n"
    for header, names in zip(headers, accesses):
        frames = [f"    #{number} {FRAMES[name]}" for number, name in enumerate(names)]
        text += "\n".join([header, *(frames or ["    [failed to restore the stack]"])]) + "\n\n"
    created = "  Thread T4 (tid=4608, running) created by main thread at:\n    #0 " + FRAMES["ours"]
    return f"{text}{created}\n\nSUMMARY: ThreadSanitizer: {kind} Objects/object.c:2464 in new_reference\n==================\n"


@pytest.mark.parametrize(
    ("accesses", "ours", "known"),
    [
        ([["ours"], ["known"]], True, False),
        ([["header", "ours"], ["known"]], True, False),
        ([["libc", "ours"], ["known"]], True, False),
        ([["known", "ours"], ["unknown", "ours"]], False, True),
        ([["libc", "known", "ours"], ["unknown"]], False, True),
        ([["unknown", "ours"], ["unknown", "ours", "known"]], False, False),
        ([["known"], []], False, True),
        ([["unknown"], []], False, False),
        ([["file"], ["unknown"]], False, False),
    ],
)
def test_a_race(accesses, ours, known):
    (report,) = races.parse(log(*accesses))
    assert (report.is_ours, report.is_known) == (ours, known)


def test_another_kind():
    (report,) = races.parse(log(["known"], ["known"], kind="lock-order-inversion (potential deadlock)"))
    assert not report.is_known


def test_several():
    text = log(["known"], ["known"]) * 2 + log(["ours"], ["ours"]) + "ThreadSanitizer: reported 3 warnings\n"
    assert [report.is_ours for report in races.parse(text)] == [False, False, True]
    assert list(races.parse("12 turns in 4 threads\n")) == []
