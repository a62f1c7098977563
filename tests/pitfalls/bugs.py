"""Bugs of the kinds that pipeline frameworks have shipped, ready to be put into minipipe.

Each module of `THEMES` has functions that put one bug in, with pytest's `monkeypatch`, which takes it out
again; behind each stands its check, `check_` and the same name. `test_pitfalls.py` shows that the check fails
with the bug in, and not without. To see all that a bug breaks:

    python -m pytest --bug reused_receive_buffer
"""

from pitfalls import arithmetic, copies, large_batches, orders, servers

THEMES = arithmetic, orders, copies, large_batches, servers
CHECKS = {
    name.removeprefix("check_"): check
    for theme in THEMES for name, check in vars(theme).items() if name.startswith("check_")
}
BUGS = {name: getattr(theme, name) for theme in THEMES for name in CHECKS if hasattr(theme, name)}
