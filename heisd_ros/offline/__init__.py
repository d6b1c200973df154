"""What runs without a robot: one file per verb of the `heisd` command, and the record of a run."""
