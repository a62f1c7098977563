"""Pipeline-parallel training, the whole idea in plain NumPy: read it, then run `python -m minipipe.tiny`.

K devices work on M micro-batches, numbered i, of m samples in all. Samples are columns; the letters are Ng's.
"""

import numpy as np


class Linear:
    """Z = W A_prev + b, with A_prev (n_prev, m), W (n, n_prev), b (n, 1), Z (n, m)."""

    def __init__(self, n_prev, n, rng):
        self.W, self.b = rng.integers(-2, 3, (n, n_prev)) / 2, rng.integers(-2, 3, (n, 1)) / 2

    def forward(self, A_prev):
        self.cache = A_prev
        return self.W @ A_prev + self.b

    def backward(self, dZ):
        """(dA_prev, dW, db). dW and db are sums over samples; their 1/m is in dZ already, from the cost."""
        return self.W.T @ dZ, dZ @ self.cache.T, dZ.sum(axis=1, keepdims=True)


class ReLU:
    """A = max(Z, 0), without parameters: dW and db are None."""

    def forward(self, Z):
        self.cache = Z
        return np.maximum(Z, 0)

    def backward(self, dA):
        return dA * (self.cache > 0), None, None


def cost(A, Y, m):
    """(J, dA), J = 1/(2m) sum of (A - Y)^2. For a micro-batch, too, m is that of the whole mini-batch."""
    return ((A - Y) ** 2).sum() / (2 * m), (A - Y) / m


class Stage:
    """The layers of one device. A forward overwrites the caches of the one before, so each is stashed."""

    def __init__(self, layers):
        self.layers, self.stash, self.most_stashed = layers, {}, 0
        self.gradients = {}  # layer: (dW, db), the sums over the micro-batches so far

    def forward(self, i, A):
        for layer in self.layers:
            A = layer.forward(A)
        self.stash[i] = [layer.cache for layer in self.layers]
        self.most_stashed = max(self.most_stashed, len(self.stash))
        return A

    def backward(self, i, dA):
        caches = self.stash.pop(i)
        for layer in reversed(self.layers):
            layer.cache = caches.pop()
            dA, dW, db = layer.backward(dA)
            if dW is not None:
                sum_dW, sum_db = self.gradients.get(layer, (0, 0))
                self.gradients[layer] = sum_dW + dW, sum_db + db
        return dA


def gpipe(device, K, M):
    """GPipe (arXiv 1811.06965): all forwards, then all backwards, the last micro-batch first."""
    return [("F", i) for i in range(M)] + [("B", i) for i in reversed(range(M))]


def one_f_one_b(device, K, M):
    """1F1B (arXiv 2006.09503): forwards to warm up, one forward and one backward in turn, then the rest."""
    warm_up = min(K - 1 - device, M)
    order = [("F", i) for i in range(warm_up)]
    for i in range(M - warm_up):
        order += [("F", warm_up + i), ("B", i)]
    return order + [("B", i) for i in range(M - warm_up, M)]


def run(layers, X, Y, K, M, schedule):
    """The mini-batch X, Y through K stages: J, the stages, and all (device, "F" or "B", i, start, end)."""
    X_parts, Y_parts = np.array_split(X, M, axis=1), np.array_split(Y, M, axis=1)
    stages = [Stage(list(part)) for part in np.array_split(layers, K)]
    orders = [schedule(device, K, M) for device in range(K)]
    inbox = {(0, "F", i): X_parts[i] for i in range(M)}  # (device, action): what that action needs
    J, actions, busy_until = 0, [], [0] * K
    for tick in range(3 * K * M + 1):  # long enough even for one device at a time
        for device, kind, i, _, end in actions:
            if end == tick:  # the action is done: its result goes to the device that needs it
                stage, message = stages[device], inbox.pop((device, kind, i))
                if kind == "B":
                    inbox[device - 1, "B", i] = stage.backward(i, message)  # from device 0: to nobody
                elif device < K - 1:
                    inbox[device + 1, "F", i] = stage.forward(i, message)
                else:
                    J_i, inbox[device, "B", i] = cost(stage.forward(i, message), Y_parts[i], m=X.shape[1])
                    J += J_i
        for device, order in enumerate(orders):
            if order and busy_until[device] <= tick and (device, *order[0]) in inbox:
                kind, i = order.pop(0)
                busy_until[device] = tick + (1 if kind == "F" else 2)  # a backward has two products
                actions.append((device, kind, i, tick, busy_until[device]))
    return J, stages, actions


def timeline(actions, K, M):
    """A row for each device, a column for each tick: F3 a forward, B3-- a backward, dots the bubble."""
    makespan, cell, margin = max(end for *_, end in actions), len(f"F{M - 1}"), len(f"device {K - 1}  ")
    ruler = "tick".ljust(margin) + "".join(str(tick).ljust(5 * cell) for tick in range(0, makespan, 5))
    rows = [f"device {device}".ljust(margin) for device in range(K)]
    for device, kind, i, start, end in actions:
        row = rows[device].ljust(margin + cell * start, ".")
        rows[device] = row + f"{kind}{i}".ljust(cell * (end - start), "-")
    return "\n".join([ruler.rstrip(), *(row.ljust(margin + cell * makespan, ".") for row in rows)])


if __name__ == "__main__":
    rng, K, M, m = np.random.default_rng(0), 4, 6, 16  # m = 2^4 and multiples of 1/2: no rounding
    layers = [Linear(3, 4, rng), ReLU(), Linear(4, 5, rng), ReLU()]
    layers += [Linear(5, 4, rng), ReLU(), Linear(4, 2, rng)]
    X, Y = rng.integers(-4, 5, (3, m)) / 2, rng.integers(-4, 5, (2, m)) / 2
    J, [full], _ = run(layers, X, Y, 1, 1, gpipe)  # one device and one micro-batch: that is the full batch
    for schedule in (gpipe, one_f_one_b):
        J_sum, stages, actions = run(layers, X, Y, K, M, schedule)
        ticks = max(end for *_, end in actions)
        print(f"\n{schedule.__doc__}\n\n{timeline(actions, K, M)}\n")
        print(f"makespan {ticks} ticks, bubble {1 - 3 * M / ticks:.2%}; J == full batch's: {J_sum == J}")
        for device, stage in enumerate(stages):
            for layer, sums in stage.gradients.items():
                equal = [np.array_equal(*pair) for pair in zip(sums, full.gradients[layer], strict=True)]
                print(f"device {device} stashes up to {stage.most_stashed}; dW, db == full batch's:", *equal)
