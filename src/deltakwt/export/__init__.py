"""Export of a model: as C for microcontrollers, or as one file for the C library."""
