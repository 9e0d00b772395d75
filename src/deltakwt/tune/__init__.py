"""Choose thresholds for a budget, and repeat the paper's threshold sweep.

The modules, in the order in which a tuning uses them: `measure` runs settings on a pool of clips
(`evaluate.pool`), `search` (with its stored study, `storage`) and `refine` look for good settings,
`goals` chooses among them, `tuning` runs these stages, `plots` draws figures. `sweep` is the
experiment of the paper.
"""
