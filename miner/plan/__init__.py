"""The size of corpora and the speed of machines, without running anything."""
