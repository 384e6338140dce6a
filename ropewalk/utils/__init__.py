"""Helpers that every folder may import: typed settings, plug-ins, paths, files, locks, messages.

They need only the standard library, except `progress` (rich) and `buckets` (gcsfs), which is
imported for paths of a bucket only. Worker processes of `data` import them too.
"""
