"""What is timed of each policy: a module of its name with a function `cases`."""
