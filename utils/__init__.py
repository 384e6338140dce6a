"""HOW a setting is written: read from text, checked against its type, found by its file's name.

Only the standard library, but for `buckets`, which is imported where there is one: every other
folder may import it, `data`'s worker processes included.
"""
