"""One task per file; the name of the file is the name of the task. See `data.task`."""
