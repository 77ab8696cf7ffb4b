"""Online tuning that pays for validation when unsure: the experiments of arXiv:2101.06590. README.md says what was found."""
