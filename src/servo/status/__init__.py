"""The status of partitions: whether there is data, whether it is stale and why, and which runs are at work on them.

Everything here is a function of a `State` (a snapshot of the projections, the definitions and the time), and nothing is
written. One text decides what is stale (`servo.fold.staleness`), and one says what the status is called
(`servo.fold.display`):

    state            what every answer is computed from
    staleness_query  puts definitions and the time beside the tables, and runs the text
    staleness        the stale partitions: as rows, counts, sets or columns
    staleness_cache  an answer that is kept in a file, for frequent questions
    removals         inputs and partitions that definitions gave once, and do not any more
    keysets          sets of partitions straight from the tables
    asset_status     all partitions of an asset by status and overlay, as sets and as columns for SQL
    partitions       lists of partitions, and everything about one, with its inputs
    grids            partitions as cells that fit a page
    selections       `status:` in selections, the list of stale partitions, what should run now
    plans            what a run would do, and what it leaves out
    deployed         definitions, schedules and sensors as the ledger has them
    sentences        all of this in words, and which code changed
"""
