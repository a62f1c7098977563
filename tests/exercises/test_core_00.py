"""What notebook 00 says to first schedules."""

import pytest

from exercises.start import NAIVE, check_first_schedule

ANSWERS = {
    "F0 F1 B0 F2 B1 B2\nF0 B0 F1 B1 F2 B2": "Right: 12 ticks",
    "F0 F1 F2 B2 B1 B0\nF0 F1 F2 B2 B1 B0": "Right: 12 ticks",
    "\n   F0 F1 B0 F2 B1 B2   \nF0 B0 F1 B1 F2 B2\n": "Right: 12 ticks",
    NAIVE:
        "It takes 18 ticks, and 12 are possible. Device 0 does nothing from tick 1 to 4: it waits for B0 of "
        "device 1. Could that come earlier, or device 0 do something else meanwhile?",
    "F0 F1 B0 B1 F2 B2\nF0 B0 F1 B1 F2 B2":
        "15 ticks, and 12 are possible. Device 1 does nothing from tick 7 to 10: it waits for F2 of device",
    "F0 F1 F2 B2 B1 B0\nF0 B0 F1 B1 F2 B2":
        "16 ticks, and 12 are possible. Device 0 does nothing from tick 3 to 10: it waits for B2 of device",
    "F0 F1 F2 B0 B1 B2\nF2 F1 F0 B0 B1 B2":
        "14 ticks, and 12 are possible. Device 0 does nothing from tick 3 to 8: it waits for B0 of device 1.",
}
REFUSED = {
    "...\n...": "Not solved yet", "": "Not solved yet",
    "F0 B0 F1 B1 F2 B2\nF0 F1 B0 B1 F2 B2":
        "It cannot run: nobody can go on, a deadlock: device 0 cannot start B0 before device 1 has done B0, "
        "and device 1 cannot start F1 before device 0 has done F1.",
    "F0 F1 F2 B1 B2\nF0 B0 F1 B1 F2 B2":
        "It cannot run: device 0 never does B0: each device needs F and B of each micro-batch.\n",
    "F0 F1 F2 B0 B1 B2\nF0 B1 F1 B0 F2 B2": "It cannot run: device 1: B1 comes before its forward F1.",
    "F0 F0 F1 B0 F2 B1 B2\nF0 B0 F1 B1 F2 B2": "It cannot run: device 0 does F0 2 times: once is enough.",
    "F0 F1 B0 B1\nF0 B0 F1 B1": "asked were 3: 0, 1 and 2",
    "F0 F1 B0 B1 F2 B2": "Devices (lines) in your schedule: 1",
    "F0 I0 W0\nF0 I0 W0": "'I0' is not an action here: write F or B",
    "F1 F2 F3 B3 B2 B1\nF1 F2 F3 B3 B2 B1": "Micro-batches are counted from 0",
    "F0,F1": "'F0,F1' is not an action here",
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_a_schedule_that_runs(answer, capsys):
    assert check_first_schedule(answer) == answer and ANSWERS[answer] in capsys.readouterr().out


@pytest.mark.parametrize("answer", [*REFUSED, None, 3])
def test_what_cannot_run_is_told_why(answer, capsys):
    assert check_first_schedule(answer) == NAIVE
    said = capsys.readouterr().out
    assert REFUSED.get(answer, "Write text with one line for each device") in said
    assert "the naive order" in said
