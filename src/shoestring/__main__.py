"""`python -m shoestring` is the command line."""

from shoestring.cli import main

main()
