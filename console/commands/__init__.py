"""One module per noun of the command line, loaded when the noun is named."""
