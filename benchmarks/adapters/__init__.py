"""How each queue is used: one small module each, run in that queue's own environment. See `base.Adapter`."""
