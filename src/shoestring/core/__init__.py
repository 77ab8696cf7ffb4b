"""The core: values and rules. It is pure: NumPy only, no clock, no disk, no logging.

    space/      what may be tried: `parameters`, `space`; `encoding` turns configs into numbers for a model
    ledger/     `entries` (what is recorded), `ledger` (all entries and what follows from them), `state` (the totals of a
                study), `accounting` (how each entry changes them), `views` (other tables), `pricing` (from a decision to an
                order), `budget`, `failures`, `order_closing`, `amendments` (what may change about a study), `snapshot` (the
                state as text)
    deciding/   `decision` (what a policy may answer), `policy` (the contract of a policy, and helpers for its author),
                `comparison` (how a policy explains a choice), `reproducible` (choosing in the same way on every machine),
                `memo` (what a policy carries from decision to decision), `prediction` (what its model predicted)
    values/     `checks` of arguments, `strict_json`, `randomness` by name, `text`, `arrays`

Read `deciding/decision.py`, `ledger/entries.py`, `ledger/ledger.py`, `ledger/state.py` and `ledger/pricing.py`; then
`deciding/policy.py`.
"""
