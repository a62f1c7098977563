"""What layers count in the forwards of a mini-batch, such as batch norm's sums."""


def take_statistics(layers):
    """What the forwards of these layers have counted, one entry for each layer; the layers then forget it.

    None if none of them has counted anything.
    """
    for layer in layers:
        if layer.statistics is not None:
            break
    else:
        return None
    statistics = [layer.statistics for layer in layers]
    for layer in layers:
        layer.statistics = None
    return statistics


def commit(layers, statistics):
    """Hand the layers their statistics of a whole mini-batch.

    BatchNorm then moves its running mean and variance.
    statistics: one entry for each layer, None for those that count nothing; or None, if none of them does.
    """
    for layer, counted in zip(layers, statistics or [None] * len(layers), strict=True):
        if counted is not None:
            layer.commit(counted)
