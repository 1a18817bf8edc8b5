"""A notebook becomes a report: executed, rendered to one page, published with an index."""
