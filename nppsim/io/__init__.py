"""Files, untrusted input, HDF5, signals and progress bars."""
