"""Pictures of a study: where the money went, what it bought, and why.

Read `story` first (what a ledger tells, gathered once), then the figures (`money`, `curves`, `timeline`, `configs`,
`importance`, `compare`), each a function from a story to an SVG with a sentence and a table. Three skins show them, all in
the look of `style`: `page`, one HTML file, which `shoestring watch` serves while a study runs; `cell`, for a notebook;
`static`, a file for each figure.
"""
