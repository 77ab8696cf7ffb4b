"""Reports: a ledger goes in, text or rows come out. Nothing here decides or buys.

`facts` is the plain data that `--json` prints; `text` lays it out for a terminal; `progress` is the live view of a run;
`export` writes rows for other tools.
"""
