"""`python -m miner` is the command `miner`."""

from miner.cli.main import main

if __name__ == "__main__":
    main()
