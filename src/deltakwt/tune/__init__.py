"""Choose thresholds for a budget, and repeat the paper's threshold sweep.

The modules, in the order in which a tuning uses them: `clips` reads and augments clips, `pool`
holds them, `measure` runs settings on them, `cost` predicts their time, `search` (with its stored
study) and `refine` look for good settings, `goals` chooses among them, `tuning` runs these stages,
`plots` draws figures. `sweep` is the experiment of the paper.
"""
