"""Reports: a ledger goes in, text or rows come out. Nothing here decides or buys."""
