"""A stand-in for the private package that the upstream Acme app imports when it starts."""
