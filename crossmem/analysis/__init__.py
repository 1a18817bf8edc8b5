"""What is made of a run's rows: figures, tables, findings and intervals."""
