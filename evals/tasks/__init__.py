"""One task a file, called as the file is: see `evals.task`."""
