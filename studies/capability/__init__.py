"""The study of what limits effective context: heads, frequencies, or the code of keys?

Each file defines a card. Two forecasts of each model, without fitted parameters, are stored before
its first run. `theory.capability` bounds the L50 of heads whose keys have random codes
(`forecasts.json`). `theory.forecast` simulates the recall that heads learn (`recall.json`; the rows
of C1 to C11 are older than it). The claims of a card go beyond these numbers.
"""
