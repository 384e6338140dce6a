"""HOW a setting is written: read from text, checked against its type, found by its file's name.

Only the standard library: every other folder may import it, `data`'s worker processes included.
"""
