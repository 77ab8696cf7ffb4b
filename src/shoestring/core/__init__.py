"""Values and rules of the game: space, money, decision, ledger. Pure: numpy only; no clock, no disk, no logging."""
