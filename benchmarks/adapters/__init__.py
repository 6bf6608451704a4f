"""One adapter for each queue, run in that queue's own environment. See `base.Adapter`."""
