"""Starting runs on TPUs, and what can be known about them without one."""
