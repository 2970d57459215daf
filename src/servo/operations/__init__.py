"""What people can ask for: each operation is a value, decided or answered by a pure function over a state."""
