"""Is effective context limited by what one head can resolve, times the number of heads?

Each file defines a card. `theory.capability` forecasts the L50 of each model from its frequencies,
its heads, the key-value pairs of its documents and their distances. One rule without fitted
parameters serves all cards. The forecasts are stored in `forecasts.json` before the first run. The
claims of a card go beyond these numbers.
"""
