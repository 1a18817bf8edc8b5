"""What stands behind a report: the page's template, style and script, and the kernel it ran in."""
