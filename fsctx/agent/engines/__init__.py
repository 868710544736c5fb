"""Engines: what computes verdicts on a device. `base` is the specification, `choose` the way in."""
