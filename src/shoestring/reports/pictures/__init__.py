"""Pictures of a study: where the money went, what it bought, and why.

Read `story` first (what a ledger tells, gathered once), then the figures (`money`, `curves`, `timeline`, `configs`,
`importance`, `compare`, `replayed`), each a function from a story to an SVG with a sentence and a table, then `page`, which puts
them into one HTML file. `decisions` are looked at one by one: `expected` (what was believed, and what came) and `offers`.
"""
