"""From rows alone: effective context, and what else they say. Pure numpy."""
