"""A model as a folder of C that stands alone, for microcontrollers."""
