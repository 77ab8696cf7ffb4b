"""Reports: they read a ledger and return text, rows or figures. They decide nothing and change nothing.

`facts` is the plain data that `--json` prints; `reasons` puts decisions into words; `text` lays both out for a terminal;
`progress` is the live view of a run; `notebook` shows a study in a notebook; `export` writes rows for other tools.
"""
