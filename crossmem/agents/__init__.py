"""Agents: what stands between a task with recalled entries and the next request."""
