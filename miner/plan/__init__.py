"""What a run would take, before anything runs: how much text there is, how fast a machine is, and the arithmetic between them."""
