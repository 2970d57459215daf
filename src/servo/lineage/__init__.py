"""Lineage: what partitions were made from. Walks, pictures, the audit report with its proof, and OpenLineage.

Nothing here opens a file or a connection: callers bring rows, or a function that answers SQL.
"""
