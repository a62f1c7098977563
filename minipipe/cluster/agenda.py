"""What happens in one tick, in this order."""

RESUME = 0  # a program goes on after what it has finished, up to its next Compute or wait
START = 1   # when no program goes on any more, those that came to a Compute start it
PORTS = 2   # messages enter the links and ports that are free
CHOOSE = 3  # a program that waits for anybody takes what has come first
