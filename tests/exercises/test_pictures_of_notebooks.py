"""The pictures of the notebooks show the numbers and the runs that they are given."""


import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

import minipipe as mp
from exercises import convolution_pictures as convolution
from exercises import crowd_pictures as crowd
from exercises import journey_pictures as journey
from exercises import layers_pictures as layers
from exercises import micro_batches_pictures as micro_batches
from exercises import normalization_pictures as normalization
from exercises import split_pictures as splits
from exercises import whole_pictures as whole
from minipipe.arrays import even_slices
from minipipe.collectives import Group, all_reduce


@pytest.fixture
def ax():
    return Figure().add_subplot()


def cells(ax):
    """({(column, row): colour}, {(column, row): text}) of all cells that were drawn."""
    colours = {(patch.get_x() + 0.5, patch.get_y() + 0.5): to_hex(patch.get_facecolor())
               for patch in ax.patches}
    return colours, {text.get_position(): text.get_text() for text in ax.texts}


def test_the_products_drawn_have_the_shapes_of_the_arrays():
    shapes = dict(X=(6, 2), W1=(4, 6), b1=(4, 1), Z1=(4, 2), A1=(4, 2), W2=(3, 4), b2=(3, 1), Z2=(3, 2))
    shapes |= {f"d{name}": shape for name, shape in shapes.items()}
    figure = layers.products({name: np.ones(shape) for name, shape in shapes.items()})
    forward, backward = figure.axes
    texts = [text.get_text() for text in backward.texts[:7]]
    assert texts == ["$dW^{[2]}$", "(3, 4)", "=", "$dZ^{[2]}$", "(3, 2)", "$A^{[1]T}$", "(2, 4)"]
    drawn = [(patch.get_height(), patch.get_width()) for patch in forward.patches[:4]]
    assert drawn == [shapes["Z1"], shapes["W1"], shapes["X"], shapes["b1"]]


def test_what_moves_is_written_into_the_stamps():
    moves = {"b[1]": np.array([[0, 0, 0], [1, -2, 1]]), "W[0, 0]": np.array([[3, 0, 1], [0, 0, 0]])}
    left, right = layers.stamps(moves).axes
    assert [text.get_text() for text in left.texts] == ["0", "0", "0", "+1", "-2", "+1"]
    assert right.get_title().startswith("raise W[0, 0] by 1")


def test_the_needle_plots_the_given_distances():
    [ax] = whole.needle(lambda factor, h: factor * h, 1, 100).axes
    right, wrong = ax.lines
    assert np.array_equal(right.get_xdata(), right.get_ydata())
    assert np.array_equal(wrong.get_ydata(), 100 * right.get_xdata())
    assert [f"{h:.0e}" for h in right.get_xdata()] == [f"1e-{k:02d}" for k in range(1, 13)]


def test_a_ring_ends_with_all_terms_in_each_chunk_of_each_device():
    programs = [all_reduce(Group(rank, range(3)), np.ones(6), "ring") for rank in range(3)]
    [ax] = splits.ring(mp.cluster.Cluster(programs, ports=mp.cluster.ports(3, 8)).run()).axes
    terms = {}
    for text in ax.texts:
        if text.get_text().isdigit():
            terms.setdefault(text.get_position()[0], []).append(int(text.get_text()))
    assert [sorted(terms[step]) for step in range(5)] == [
        [1] * 9, [1] * 6 + [2] * 3, [1] * 3 + [2] * 3 + [3] * 3, [2] * 3 + [3] * 6, [3] * 9]


def test_a_copy_keeps_all_parts_of_a_shelf_or_its_own():
    whole = {"gradients": 2, "parameters": 6}
    left, right = splits.shelves({"all": whole, "some": {"gradients": 1, "parameters": 6}}, 2).axes
    kept = [[patch for patch in ax.patches if to_hex(patch.get_facecolor()) != "#ffffff"]
            for ax in (left, right)]
    assert [len(patches) for patches in kept] == [2 * 2 * 2, 2 * 2 + 2]
    assert sorted({round(patch.get_height() + 0.01, 2) for patch in kept[0]}) == [0.25, 0.75]
    own = [patch.get_x() for patch in kept[1] if patch.get_y() == 0]
    assert own == [0, 1 + 0.85 / 2]  # part 0 of copy 0, part 1 of copy 1


def test_misread_images_are_those_that_differ():
    images, truth, read = np.zeros((64, 4)), np.array([1, 2, 3, 4]), np.array([1, 7, 3, 9])
    figure = whole.misread(images, truth, read, n=2)
    assert [ax.get_title() for ax in figure.axes] == ["read 7\nis 2", "read 9\nis 4"]


def test_the_weights_in_the_picture_add_up_to_one():
    [ax] = micro_batches.weights([3, 3, 2, 2]).axes
    by_m, of_means = ([bar.get_height() for bar in bars] for bars in ax.containers)
    assert by_m == [1 / 10] * 10 and of_means == [1 / 12] * 6 + [1 / 8] * 4
    assert abs(sum(of_means) - 1) <= 10 * 2**-53  # ten additions of numbers up to 1, each rounded once


def test_the_shapes_in_the_picture_match_the_arrays():
    layer = mp.Linear(3, 2, W=np.ones((2, 3)), b=np.ones((2, 1)))
    [ax] = layers.one_layer(layer, np.ones((3, 4)), np.ones((2, 4))).axes
    texts = " ".join(text.get_text() for text in ax.texts)
    for name, shape in [("$A_{prev}$", (3, 4)), ("$Z$", (2, 4)), ("$dZ$", (2, 4)), ("$dA_{prev}$", (3, 4)),
                        ("$dW$", (2, 3)), ("$db$", (2, 1)), ("$W$", (2, 3)), ("$b$", (2, 1))]:
        assert f"{name} {shape}" in texts


def test_windows_stand_where_stride_and_padding_put_them(ax):
    convolution.windows(ax, w=[1, 2, 3], A_prev=[5, 6, 7, 8], Z=[10, 20], stride=2, padding=1)
    colours, texts = cells(ax)
    assert [texts[q, 0] for q in range(-1, 5)] == ["0", "5", "6", "7", "8", "0"]
    assert [texts[q, 1.4] for q in (-1, 0, 1)] == [texts[q, 2.4] for q in (1, 2, 3)] == ["1", "2", "3"]
    assert [colours[q, 1.4] for q in (-1, 0, 1)] == [colours[q, 2.4] for q in (1, 2, 3)]
    assert len({colours[q, 1.4] for q in (-1, 0, 1)}) == 3 and len(colours) == 6 + 3 + 3
    assert [text for text in texts.values() if "=" in text] == ["$Z_0 = 10$", "$Z_1 = 20$"]


def test_a_matrix_shows_equal_kinds_in_equal_colours(ax):
    kinds = np.array([[0, 1, -1], [-1, 0, 1]])
    first_row = np.array([[True] * 3, [False] * 3])
    convolution.matrix(ax, np.array([[4, 5, 0], [0, 4, 5]]), kinds, bright=first_row, xlabel="x", ylabel="y")
    colours, texts = cells(ax)
    assert [[texts[column, row] for column in range(3)]
            for row in range(2)] == [["4", "5", ""], ["", "4", "5"]]
    assert (colours[0, 0], colours[1, 0]) == tuple(to_hex(colour) for colour in convolution.COLOURS[:2])
    assert colours[1, 1] == colours[2, 1] == to_hex(convolution.PALE)
    assert colours[2, 0] == colours[0, 1] == to_hex("white")


def test_a_cone_has_dots_for_derivatives_lines_for_weights(ax):
    derivatives = [np.array([1.0, 0, 2, 0, 1]), np.array([0.0, 0, 3, 0, 0])]
    convolution.cone(ax, derivatives, kernel_size=3, dilations=(2,))
    assert sorted(tuple(line.get_xdata()) for line in ax.lines) == [(0, 2), (2, 2), (4, 2)]
    dots = {(x, y): to_hex(dots.get_facecolor()[0]) for dots in ax.collections for x, y in dots.get_offsets()}
    full = {place for place, colour in dots.items() if colour == to_hex(convolution.SEEN)}
    assert full == {(0, 0), (2, 0), (4, 0), (2, 1)} and len(dots) == 10


def test_a_crowd_has_somebody_where_it_says_and_frames_there():
    images = np.random.default_rng(0).random((8, 8, 5))
    sheet, places = crowd.crowd(images, images[..., 2], seed=1, often=2, rows=2, columns=3)
    for row, column in places:
        assert np.array_equal(sheet[row:row + 8, column:column + 8], images[..., 2])
    scores = np.zeros((17, 29))
    scores[tuple(np.transpose(places))] = 1
    above = crowd.found(sheet, scores, n=2).axes[0]
    assert {(frame.get_y() + 1, frame.get_x() + 1) for frame in above.patches} == set(places)


@pytest.mark.parametrize("layer, groups", [
    (mp.BatchNorm(4), [[0, 0, 0, 4, 4], [1, 1, 1, 5, 5], [2, 2, 2, 6, 6], [3, 3, 3, 7, 7]]),
    (mp.LayerNorm(4), [[0, 1, 2, 3, 4]] * 4),
    (mp.GroupNorm(2, 4), [[0, 1, 2, 6, 7]] * 2 + [[3, 4, 5, 8, 9]] * 2),
    (mp.GroupNorm(4, 4),
     [[row * 3, row * 3 + 1, row * 3 + 2, row * 2 + 12, row * 2 + 13] for row in range(4)]),
])
def test_groups_are_found_by_derivatives(layer, groups):
    numbers = np.random.default_rng(0).random((4, 5)) + 0.5
    layer.initialize(np.random.default_rng(0))
    assert normalization.groups_of(layer, numbers, even_slices(5, 2)).tolist() == groups


def test_a_line_stands_between_different_groups_only(ax):
    normalization.groups(ax, np.array([[0, 0, 1], [2, 2, 1]]), [slice(0, 2), slice(2, 3)], "title")
    colours, _ = cells(ax)
    groups = {place: normalization.COLOURS.index(colour.upper()) for place, colour in colours.items()}
    assert groups == {(0, 0): 0, (1, 0): 0, (2, 0): 1, (0, 1): 2, (1, 1): 2, (2, 1): 1}
    assert sum(line.get_linewidth() == 1 for line in ax.lines) == 4
    assert [tuple(line.get_xdata()) for line in ax.lines if line.get_linewidth() > 3] == [(1.5, 1.5)]


def test_a_mask_is_dark_where_it_is_not_0(ax):
    normalization.draw_masks(ax, np.array([[0.0, 2.0], [2.0, 2.0]]), [slice(0, 1), slice(1, 2)], "1 + 1")
    assert ax.images[0].get_array().tolist() == [[False, True], [True, True]]
    assert [to_hex(colour).upper() for colour in ax.images[0].cmap.colors] == [
        normalization.PALE, normalization.KEPT]
    assert [tuple(line.get_xdata()) for line in ax.lines] == [(0.5, 0.5)]


def test_the_spread_shows_each_number_and_each_mean():
    [ax] = normalization.spread(np.array([1.0, 3.0, 8.0]), [slice(0, 2), slice(2, 3)]).axes
    assert [dots.get_offsets().tolist() for dots in ax.collections] == [[[1, 0], [3, 0]], [[8, 1]]]
    lines = [(tuple(line.get_xdata()), tuple(line.get_ydata())) for line in ax.lines[1:]]
    assert lines == [((2, 4), (0, 0)), ((2, 2), (-0.32, 0.32)), ((8, 4), (1, 1)),
                     ((8, 8), (1 - 0.32, 1 + 0.32))]
    assert tuple(ax.lines[0].get_xdata()) == (4, 4)


class Writer:
    """Writes 0, 1, 2 in turn, and is sure of it."""

    def predict(self, tokens):
        Z = np.zeros((3, *tokens.shape))
        Z[(tokens[-1, 0] + 1) % 3, -1, 0] = 40
        return Z

    def encode(self, text):
        return np.array([int(character) for character in text])

    def decode(self, ids):
        return "".join("a \n"[number] for number in ids)


def test_a_written_text_is_darker_where_it_was_more_probable():
    model = Writer()
    _, ax = journey.written(model, [model, model], "0", T=4, n=5).axes
    texts = {text.get_position(): text.get_text() for text in ax.texts}
    assert list(texts.values()) == ["\u00b7", "\u21b5", "a", "\u00b7", "\u21b5"] and (4, 0) in texts
    assert len({patch.get_facecolor() for patch in ax.patches}) == 1
    assert sum(ax.patches[0].get_facecolor()) < 2                 # dark
    assert {text.get_color() for text in ax.texts} == {"white"}


def test_messages_are_arrows_from_sender_to_receiver():
    layers = [mp.Linear(2, 2), mp.Fork("a"), mp.Tanh(), mp.Join("a"), mp.Linear(2, 2)]
    pipe = mp.Pipeline(
        layers, mp.MeanSquaredError(), mp.Cut([2, 1, 2]), 2, link=mp.Link(latency=1))
    pipe.forward_backward(np.ones((2, 2)), np.ones((2, 2)))
    [ax] = journey.journeys(pipe.trace, {" a": "detour"}).axes
    arrows = {(*note.xyann, *note.xy) for note in ax.texts if note.get_text() == ""}
    detours = [message for message in pipe.trace.messages if str(message.label).endswith(" a")]
    assert arrows == {(message.sent, message.source, message.arrived, message.to) for message in detours}
    assert [(message.source, message.to) for message in detours] == [(0, 2), (0, 2), (2, 0), (2, 0)]
