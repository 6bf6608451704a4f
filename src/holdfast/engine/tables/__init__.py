"""The tables that every store has alike: their SQL is written once and runs over `Transaction`.

They are in the engine, and not in `holdfast.stores`, because they need nothing of a store but that port. The verbs of the
engine call them directly.
"""
