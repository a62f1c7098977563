"""The command line: `python -m minipipe ...`, or `minipipe ...` once installed."""
