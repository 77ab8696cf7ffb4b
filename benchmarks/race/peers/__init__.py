"""Other tools, each in its own environment, driven over a connection of JSON lines.

`drive_NAME.py` runs in the tool's environment and needs only the standard library, the tool and `link.py`. `environments.py`
creates and finds the environments. `policy.py` is the race's end of the connection: a policy that asks the tool, so that a tool
runs with the same loop, ledger and clock as our policies.
"""
