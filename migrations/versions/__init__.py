"""One module per schema, oldest first."""
