"""What partitions are: whether there is data, whether it is stale and why, and what is going on with them.

Everything here is asked of a `State` (a snapshot of the projections, the definitions and the time), and nothing is
written. One text decides what is stale (`servo.fold.staleness`), and one says what the status is called
(`servo.fold.display`):

    state            what every question is answered from
    staleness_query  puts definitions and the time beside the tables, and runs the text
    staleness        the stale partitions: as rows, counts, sets or columns
    staleness_cache  an answer that is kept in a file, for who asks often
    inputs           the inputs of one partition, and which of them changed
    removals         inputs and partitions that definitions gave once, and do not any more
    keysets          sets of partitions straight from the tables
    asset_status     all partitions of an asset by status, as sets
    overlays         what unfinished runs do with partitions
    partitions       lists of partitions, and everything about one
    grids            partitions as cells that fit a page
    selections       `status:` in selections
    columns          the computed columns of `partition_status` in SQL, here and on Spark
    due              what should run now
    exclusions       what a run leaves out: frozen partitions, and readers of marked ones
    code_changes     which code made what, and what changed in it since
    sentences        all of this in words
"""
