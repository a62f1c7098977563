"""How gradients change parameters."""


class SGD:
    """Stochastic gradient descent with momentum.

        v = momentum * v + dW,    W = W - learning_rate * v        (the same for b)

    v starts at 0 and belongs to this object, so keep one optimizer for the whole of a training. The
    derivatives need no division by m: the loss has done that. Source: Polyak 1964; this form of the
    momentum is equation 9 of Goyal et al. 2017, arXiv 1706.02677.
    """

    def __init__(self, learning_rate, momentum=0):
        if not learning_rate > 0:
            raise ValueError(f"learning_rate={learning_rate} must be above 0")
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum={momentum} must lie in 0 <= momentum < 1")
        self.learning_rate, self.momentum = learning_rate, momentum
        self._velocity = {}

    def update(self, layers, gradients):
        """Change the parameters of `layers` in place; `gradients` is a list of `(dW, db)`, one per layer."""
        if self._velocity and {key: v.shape for key, v in self._velocity.items()} != _shapes(gradients):
            raise ValueError("this optimizer has the velocity of another network: make a new SGD for each network")
        for index, (layer, (dW, db)) in enumerate(zip(layers, gradients, strict=True)):
            if dW is not None:
                layer.W -= self.learning_rate * self._with_momentum((index, "W"), dW)
            if db is not None:
                layer.b -= self.learning_rate * self._with_momentum((index, "b"), db)

    def _with_momentum(self, key, gradient):
        if not self.momentum:
            return gradient
        velocity = self._velocity.get(key)
        if velocity is None:
            self._velocity[key] = gradient.copy()
        else:
            velocity *= self.momentum
            velocity += gradient
        return self._velocity[key]


def _shapes(gradients):
    return {
        (index, name): part.shape
        for index, pair in enumerate(gradients) for name, part in zip("Wb", pair) if part is not None
    }
