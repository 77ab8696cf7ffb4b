"""The timed cases of each policy: a module of its name with a function `cases`."""
