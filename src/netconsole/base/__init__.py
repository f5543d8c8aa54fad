"""How figures are written, how errors are told, how files are read and written: for every room."""
