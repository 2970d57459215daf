"""What partitions were made from and what was made from them: walking it, drawing it, and telling others of it.

Nothing here opens a file or a connection: whoever calls brings rows, or a function that answers SQL.
"""
