"""One schedule each, otherwise `base_30m`: what a variant does when a model is trained with it."""
