"""The state of a key as a row: lists, and the places in them to which its numbers refer."""
