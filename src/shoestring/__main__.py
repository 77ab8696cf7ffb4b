"""`python -m shoestring` is the command line."""

from shoestring.cli.main import main

main()
