"""Places that raise ValueError and that no row of the table can reach, each with the reason."""

UNREACHED: dict[str, str] = {}
