"""What is said of a guess that is wrong for a reason, {question: {guess: sentence}}: cells do not show it."""

COMMENTS = {
    "0a": {6: "That is one micro-batch. The second starts when it is back."},
    "1c": {48: "You took the slope of g at 2. But what g gets is f(2)."},
    "1d": {-0.0366: "That is the real change."},
    "2a": {0.5: "That is the answer to each picture. What is the loss of such an answer?"},
    "2b": {12: "Half of 25, nearly.", 13: "Half of 25, nearly.", 50: "Longer steps, and more of them?"},
    "3a": {(4, 4, 2): "Look at A_prev[2, 1]: what does W[0, 2] do for that sample?"},
    "3b": {48 * 64: "That is dW: it stays in the layer."},
    "7c": {"deadlock": "That is the word for it."},
    "8a": {27: "That is without the drain: after the last device, the others still have backwards to do.",
           30: "Both ways count: 3 forwards before the last device starts, and 3 backwards after it is done.",
           36: "The last device waits for 3 forwards, one for each device before it, not for 4."},
    "8b": {28: "With 28 it is exactly 20 %."},
    "8c": {0.96: "That is a share: how many digits is it of 360?"},
    "12c": {33: "That is 1F1B's own time. With less room, a device that could work has to wait."},
}
