"""Mine parallel sentences: text in any languages in, translation pairs out."""

__version__ = "0.1.0"
