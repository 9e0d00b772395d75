"""The report of a model (`deltakwt report`) and the explanation of one sound (`explain`).

`build` measures and writes a report, `study` holds the clips and their runs, `sections/` has what
is shown, `page` puts it on one HTML page, and `explain` does the same for one second of sound.
"""
