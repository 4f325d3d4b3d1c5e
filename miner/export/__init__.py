"""Export of a mined bitext to the formats of other tools."""
