"""Parquet tables that can be thrown away and rebuilt, and the reader over them."""
