"""Reports: they read a ledger and return text, rows or figures. They decide nothing and change nothing.

`facts` is the plain data that `--json` prints; `reasons` puts decisions into words; `messages` prepares both for a terminal;
`progress` shows a run while it lasts; `notebook` shows a study in a notebook; `export` writes rows for other tools; `figures`
draws the pages and pictures of a study.
"""
