"""Loops and branches of compiled programs: functions of the user's traced into bodies (`ops/control/records.py`)."""
