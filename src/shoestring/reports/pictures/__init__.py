"""Pictures of a study: where the money went, what it bought, and why.

Read `story` first (what a ledger tells, gathered once), then the figures (`money`, `curves`, `timeline`, `configs`,
`importance`, `compare`), each a function from a story to an SVG with a sentence and a table, then `page`, which puts them
into one HTML file, and `server`, which serves it while a study runs.
"""
