"""What can be counted in the trace of a schedule's run."""


def peak_microbatches(trace):
    """For each device, the most micro-batches that were alive at once in `trace`.

    A micro-batch is alive on a device from the start of its forward to the end of its backward, or of the W if the backward is in
    halves: that long the device must keep what the backward needs. Where a device has several stages, each counts by itself.
    """
    peaks = []
    for device in range(trace.n_devices):
        changes = []
        for span in trace.spans_of(device):
            for part in getattr(span.label, "parts", ()):
                if part.kind == "F":
                    changes.append((span.start, 1))
                elif part.kind in "BW":
                    changes.append((span.end, -1))
        alive = peak = 0
        for _, change in sorted(changes):  # at one instant, ends come before starts
            alive += change
            peak = max(peak, alive)
        peaks.append(peak)
    return peaks
