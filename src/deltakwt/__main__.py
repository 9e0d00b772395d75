"""`python -m deltakwt`."""

from deltakwt.cli import main

main()
