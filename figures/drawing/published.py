"""GPipe's tables 1, 2 and 3 and Zero Bubble's as text: published cells and ours."""

from minipipe.papers import table_1, table_2, table_3
from minipipe.papers.gpipe import M

from .explained import BOUNDS, blocks_that_fit, text_of_cells, text_of_largest, torchgpipe_table
from .zero_bubble import bubble_rates


def tables():
    """Return the four tables with what explains their errors; half a minute."""
    return "\n\n\n".join([largest_networks(), throughput_on_tpus(), throughput_on_gpus(), bubble_rates()])


def largest_networks():
    """Return GPipe's table 1."""
    fit = ", ".join(f"{blocks_that_fit(K)} on {K}" for K in (1, 8, 32, 128))
    return f"""\
GPipe's table 1: the largest network that fits, published and computed here; memory of all devices together
AmoebaNet-D, 128 images, devices of 8 GB; Transformer, 32 sequences, devices of 16 GB; 12 bytes a parameter

{text_of_largest(table_1())}

alone: without GPipe. GB is 10^9 bytes for AmoebaNet-D and 2^30 for the Transformer; the fullest device
always 2^30.
Parameters: the paper rounds, and cuts 542, 1055 and 1844 millions off; 318 should be 319. Parameter memory:
1.05 and 24.62 are not 12 bytes times the number of parameters that is printed above them.
Activations, assumed: {M} micro-batches, float32, the caches that a stage of this package has after a
forward, counted in arrays without values; with GPipe N stage inputs, and the caches of one micro-batch,
O(N + L/K N/M). That is about half of what is published, and grows with K as that does. Alone, it is the
caches of all N samples, O(N L): that fits no device, so the paper's first columns had fewer samples at once,
or kept less. In "Transformer 3, alone" the paper prints 3.15 and 11.7 in each other's place; here they are
put back.
By this count the most Transformer blocks that fit are {fit}; published: 13, 103, 415, 1663."""


def throughput_on_tpus():
    """Return GPipe's table 2, and torchgpipe's of the same network."""
    cells = table_2()
    speed = {cell.K: cell for cell in cells if cell.family == "Transformer" and cell.M == 32}
    return f"""\
GPipe's table 2: throughput on TPUs relative to K = 2, M = 1; AmoebaNet-D (18, 256), Transformer of 48 layers

{text_of_cells(cells, BOUNDS["table 2"])}

Above what equal stages and free links give, stage costs do not explain a cell, but larger batches than in the
cell that all are relative to do; the paper says that it adjusted them. The Transformer's 1.3 and 4.8 no
schedule reaches with equal batches: M micro-batches, each of them 3 forwards long there and back, where
K = 2, M = 1 takes 3.5 (with recomputation before the gradient arrives; if it waits, that is 4, and the bounds
1.33 and 5.33). Where a cell is below, the stages were not equal; the first is taken to be the slowest. MACs
are not time: pooling and normalisation have none, and narrow convolutions fill a matrix unit badly.
From 2 to 8 devices the Transformer is {speed[8].published / speed[2].published:.2f} times as fast, \
as published, and {speed[8].simulated / speed[2].simulated:.2f} times by simulation.

The same AmoebaNet-D by torchgpipe, on other devices and cut by hand, beside the same simulation

{text_of_cells(torchgpipe_table())}"""


def throughput_on_gpus():
    """Return GPipe's table 3."""
    return f"""\
GPipe's table 3: throughput on P100s without NVLink relative to K = 2; AmoebaNet-D (18, 128), Transformer of \
24 layers

{text_of_cells(table_3(), BOUNDS["table 3"])}"""
