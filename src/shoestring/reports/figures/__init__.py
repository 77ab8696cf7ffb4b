"""Figures of a study: where the budget went, what the training gave, and why.

Read `history` first (what a ledger holds, read once), then the figures, each a function from a history to a `Figure` of
`drawing`: an SVG with a sentence and a table.

    costs, curves, configs      every study
    comparisons                 several studies, or a study and the replay of another policy
    predicted_and_actual        every policy that predicts where a run will end
    policy_figures              one family of policies each
    decisions, predicted_curves one decision at a time

Three modules show them, in the look of `style`: `page` makes one HTML file, which `shoestring watch` serves while a study runs;
`notebook_cell` is for notebooks; `static` writes one file for each figure.
"""
