"""The three tables of a store."""

from __future__ import annotations

from sqlalchemy import Column, Double, Integer, MetaData, Table, Text

METADATA = MetaData()
ENTRIES = Table(  # see rows.py
    "entries",
    METADATA,
    Column("study", Text, primary_key=True),
    Column("seq", Integer, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("sum", Text, nullable=False),
    Column("at", Double, nullable=False),
    sqlite_with_rowid=False,  # the key is the table: one tree to write, one tree that can break
)
LEASES = Table(  # see lease.py
    "leases",
    METADATA,
    Column("study", Text, primary_key=True),
    Column("holder", Text, nullable=False),  # drawn anew for each lease; empty once it is given back
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("machine", Text, nullable=False),  # where the pid means something
    Column("started", Text, nullable=False),  # tells the holder from a later process with its pid
    Column("heard_at", Double, nullable=False),
    Column("entries", Integer, nullable=False),  # in the ledger at the last heartbeat
    Column("running", Text, nullable=False),  # {order: seconds, or [seconds, their price]} at the last heartbeat
)
SNAPSHOTS = Table(  # see snapshots.py
    "snapshots",
    METADATA,
    Column("study", Text, primary_key=True),
    Column("seq", Integer, nullable=False),  # the row that the books were written behind
    Column("first_sum", Text, nullable=False),  # checksum of row 0, which says what the study is
    Column("sum", Text, nullable=False),  # checksum of row `seq`
    Column("format", Integer, nullable=False),  # of the rows that follow
    Column("layout", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("seal", Text, nullable=False),  # checksum of all this
)
