"""Figures of a study: where the budget went, what the training achieved, and why.

Read `history` first (what a ledger holds, read once), then the figures. Each is a function that takes a history and returns a
`Figure` of `drawing`: an SVG with a sentence and a table.

    costs, trial_curves, configs   every study
    comparisons                    several studies, or a study and the replay of another policy
    predicted_and_actual           every policy that predicts where a trial will end
    policy_figures                 one family of policies each
    decisions, predicted_curves    one decision at a time

Three modules show them, in the colours of `style`: `page` makes one HTML file, which `shoestring watch` serves while a study
runs; `notebook_cell` is for notebooks; `static` writes one file for each figure.
"""
