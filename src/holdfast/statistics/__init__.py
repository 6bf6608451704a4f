"""Statistics of jobs, kept in the store: figures of minutes, hours and days that are folded from the event log.

`metrics` names the figures, `counting` turns what a store has counted into figures, `table` keeps them, `folding` follows the event log,
`sampling` adds what no event tells, `reading` makes reports, and `verbs` is the namespace `app.stats`. The first two are pure.
"""
