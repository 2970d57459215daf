"""Figures, one JSON line each: `make bench`, or `python -m bench append fold` for some of them."""
