"""The parameters of a list of layers, one by one, with their gradients."""


def pairs_of_layers(layers):
    """Return (W, b) of each layer: arrays, None, or tuples for a layer made of layers."""
    return [(layer.W, layer.b) for layer in layers]


def parameters_with(layers, gradients):
    """{(index of the layer, "W" or "b", position): (the layer that has it, the parameter, its gradient)}.

    The position counts the parameters of a layer made of layers.

    gradients: a list of `(dW, db)`, one per layer; `ValueError` for another number of them.
    """
    if len(layers) != len(gradients):
        raise ValueError(
            f"{len(layers)} layers but {len(gradients)} gradients: pass one pair (dW, db) for each layer"
        )
    return {
        (index, name, position): (owner, getattr(owner, name), gradient)
        for index, (layer, pair) in enumerate(zip(layers, gradients))
        for name, of_layer in zip("Wb", pair)
        for position, (owner, gradient) in enumerate(_owners(layer, of_layer))
    }


def _owners(layer, gradient):
    """Return [(layer, gradient)]: the layer itself, or those that it is made of, if they have a gradient."""
    if gradient is None:
        return []
    if isinstance(gradient, tuple):
        return [pair for parts in zip(layer.layers, gradient, strict=True) for pair in _owners(*parts)]
    return [(layer, gradient)]
