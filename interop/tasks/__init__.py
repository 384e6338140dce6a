"""Tasks of lm-evaluation-harness that need no network: YAML files, and their documents."""
