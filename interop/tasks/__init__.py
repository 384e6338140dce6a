"""Tasks of lm-evaluation-harness that need no network: YAML beside what makes questions."""
