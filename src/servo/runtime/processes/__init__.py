"""Processes of this machine: children that run a `servo` command, and the place where work is done."""
