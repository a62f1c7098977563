"""What the tests of all engines run: a network with all that a device must keep in mind, and its samples."""

import numpy as np

import minipipe as mp
from minipipe.engines.threads import OVERHEAD

LOSS = mp.MeanSquaredError()


def network(tie=None):
    """A skip connection, batch norm, dropout; two layers that share a W by the name `tie`, if it is given."""
    return [
        mp.Linear(6, 8), mp.ReLU(), mp.Fork("skip"), mp.Linear(8, 8, tie=tie), mp.BatchNorm(8),
        mp.Dropout(0.5), mp.Linear(8, 8, tie=tie), mp.Join("skip"), mp.Tanh(), mp.Linear(8, 4),
    ]


def mini_batch(m):
    rng = np.random.default_rng(m)
    return rng.standard_normal((6, m)).astype(np.float32), rng.standard_normal((4, m)).astype(np.float32)


def pair(engine, n_stages, n_microbatches, schedule="gpipe", recompute="never", *, layers):
    """The same pipeline on the cluster and on another engine."""
    return [
        mp.Pipeline(
            layers, LOSS, n_stages, n_microbatches, schedule=schedule, recompute=recompute,
            dtype=np.float32, engine=name,
        )
        for name in ("cluster", engine)
    ]


def work(trace):
    """What was done and sent, without the times."""
    spans = [(s.device, s.lane, str(s.label), type(s.label)) for s in trace.spans if s.label != OVERHEAD]
    messages = [(str(m.label), m.source, m.to, m.n_bytes, m.lane, m.to_lane) for m in trace.messages]
    return sorted(spans, key=str), sorted(messages)


def assert_can_be_read(trace):
    """Work and idle time tile each lane; the explanation tiles the idle time, the critical path the run."""
    for device, lane in trace.lanes:
        pieces = [(s.start, s.end) for s in trace.spans_of(device, lane) if s.end > s.start]
        pieces += [(i.start, i.end) for i in trace.idle if (i.device, i.lane) == (device, lane)]
        ends = [0, *(end for _, end in sorted(pieces))]
        assert [start for start, _ in sorted(pieces)] == ends[:-1]
        assert not pieces or ends[-1] == trace.makespan
    for idle, parts in trace.explain().parts.items():
        assert [idle.start, *(part.end for part in parts)] == [*(part.start for part in parts), idle.end]
    steps = trace.critical_path()
    if not trace.makespan:
        return
    assert [step.start for step in steps] == [0, *(step.end for step in steps[:-1])]
    assert steps[-1].end == trace.makespan
    assert all(m.sent <= m.arrived <= m.received for m in trace.messages)
