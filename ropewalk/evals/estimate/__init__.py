"""Effective context and other summaries of result rows. Pure numpy."""
