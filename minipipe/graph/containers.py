"""Arrays inside of lists, tuples, dicts and `functools.partial`, at any depth."""

import copy
from functools import partial

CONTAINERS = (list, tuple, dict, partial)


def parts_of(value):
    """Return what a container holds, in order; for anything else an empty list.

    >>> parts_of({"a": 1, "b": [2]}), parts_of(partial(max, 1, key=abs))
    ([1, [2]], [<built-in function max>, 1, <built-in function abs>])
    """
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, (list, tuple)) else []


def nodes(value, kept=()):
    """Yield `value`, and all that it holds at any depth, but not what the containers in `kept` hold.

    >>> list(nodes([1, (2, [])]))
    [[1, (2, [])], 1, (2, []), 2, []]
    """
    yield value
    for part in [] if _is_among(value, kept) else parts_of(value):
        yield from nodes(part, kept)


def mapped(function, value, kept=()):
    """Return `value` with `function(leaf)` for each leaf; a container of which nothing changes stays itself.

    kept: containers that stay as they are, with all that they hold.

    >>> from operator import neg
    >>> mapped(neg, [1, {"a": (2,)}])
    [-1, {'a': (-2,)}]
    """
    if not isinstance(value, CONTAINERS):
        return function(value)
    if _is_among(value, kept):
        return value
    parts = parts_of(value)
    new = [mapped(function, part, kept) for part in parts]
    return value if all(a is b for a, b in zip(parts, new)) else with_parts(value, new)


def snapshot(value, is_leaf, kept=()):
    """Return `value` as it is now: containers that hold a leaf, at any depth, are copied, others stay.

    is_leaf: `is_leaf(node)` says whether it is one.
    kept: containers that stay themselves.
    """
    if is_leaf(value) or _is_among(value, kept) or not any(map(is_leaf, nodes(value))):
        return value
    return with_parts(value, [snapshot(part, is_leaf, kept) for part in parts_of(value)])


def with_parts(value, parts):
    """Return a container like `value` that holds `parts` instead."""
    if isinstance(value, partial):
        n = 1 + len(value.args)
        return partial(parts[0], *parts[1:n], **dict(zip(value.keywords, parts[n:], strict=True)))
    if isinstance(value, tuple):
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    new = copy.copy(value)
    if isinstance(value, dict):
        new.update(zip(value, parts, strict=True))
    else:
        new[:] = parts
    return new


def _is_among(value, kept):
    return any(value is one for one in kept)
