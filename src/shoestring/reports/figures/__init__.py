"""Pictures of a study: where the money went, what it bought, and why.

Read `story` first (what a ledger tells, gathered once), then the figures (`money`, `curves`, `timeline`, `configs`,
`importance`, `compare`, `replayed`), each a function from a story to an SVG with a sentence and a table. `decisions` are looked
at one by one: `expected` (what was believed, and what came) and `offers`. Three skins show them, in the look of `style`:
`page`, one HTML file, which `shoestring watch` serves while a study runs; `cell`, for a notebook; `static`, a file for each.
"""
