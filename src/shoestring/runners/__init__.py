"""Runners buy what was decided: in this process, in others, through a command, or from a table."""
