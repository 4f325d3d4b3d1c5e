"""What a run would take, before it runs: the size of the corpora, the speed of a machine, and the cost of every stage."""
