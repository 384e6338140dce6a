"""Checkpoints that travel: out to Hugging Face's formats and in from them."""
