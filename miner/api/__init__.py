"""The Python interface, which `import miner` offers: the commands on data in memory, without files and without Beam. See docs/python.md."""
