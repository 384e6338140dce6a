"""What limits how far a model sees: what one head can tell apart, times the number of heads?

Each file is a card, or two on one question. What is forecast for a model's L50 is computed by
`theory.capability` from its frequencies, its heads, the pairs of its documents and the distances
asked, by one rule for all cards with nothing fitted, and lies in `forecasts.json` before the first
run. Claims are what a card says beyond these numbers.
"""
