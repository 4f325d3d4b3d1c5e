"""Research: public datasets in the layouts in which they are published, and the tables of papers that `miner reproduce` reproduces."""
