"""Stores remember: in memory, or in a database that several machines may share."""
