"""Other tools, each in an environment of its own, driven over JSON lines.

`drive_NAME.py` runs in the tool's environment, with the standard library, the tool and `link.py` only; `environments.py` makes
and finds the environments; `policy.py` is the other end of the line: a policy that asks the tool, so that a tool runs
under the same loop, ledger and clock as our own policies.
"""
