"""Every command by its name: the module that has it, and what it does in a line.

Help and completion are made from this, so that they wait for no module. The line of a verb is the beginning of its
docstring, as much of it as a terminal shows (a test compares them).
"""

from __future__ import annotations

from servo.cli.lazy import Command, Noun

__all__ = ["COMMANDS"]

COMMANDS: dict[str, Command | Noun] = {
    "asset": Noun(
        "servo.cli.asset",
        "List and show the project's assets.",
        "List, show and explain the project's assets.",
        {
            "accept-code": "Declare that an asset's code makes what it made before: a refactoring.",
            "list": "List the assets, upstreams first, as the project's code declares them.",
            "show": "Show all that is declared about an asset: `orders`, `sales/orders` or `sales.orders`.",
            "why": "Explain an asset: how many of its partitions are stale, missing or failed, why, and where that",
        },
    ),
    "audit": Noun(
        "servo.cli.audit",
        "Report how a partition came about, and prove the report.",
        "Report how a partition came about, and prove the report.",
        {
            "report": "Report how a partition came about: what ran, from which inputs, checked and approved by whom,",
            "verify": "Check a report: every link of the chain, and every statement against the events that it cites.",
        },
    ),
    "backfill": Noun(
        "servo.cli.backfill",
        "Recompute slices of history; watch, stop and repair it.",
        """Recompute any slice of history, with what it needs first; watch it, stop it, repair it.

        A BACKFILL is its name, its id, or as much of the id's beginning as no other has.
        """,
        {
            "cancel": "End a backfill and its runs; what they have made stays.",
            "chunks": "List the chunks that were planned, by their number: their partitions, their run and what came",
            "create": "Compute partitions of assets in chunks, each of them a run, a few at the same time.",
            "list": "List backfills, newest first; what belongs to another is counted with it.",
            "pause": "Start no more chunks; those at work finish.",
            "preview": "Show what `create` would come to with the same options; write nothing.",
            "resume": "Go on with the next chunk of a paused backfill.",
            "retry-failed": "Compute again exactly the partitions that failed in a backfill that has ended, as a new",
            "status": "Show how a backfill stands: what failed first, then each job of its tree, how fast and until",
        },
    ),
    "check": Command("servo.cli.definitions", "Say what is wrong with the project's definitions."),
    "checkpoint": Noun(
        "servo.cli.checkpoint",
        "Approve or reject what waits for a person.",
        "Approve or reject what waits for a person. The id of a checkpoint may be shortened.",
        {
            "approve": "Publish exactly what was staged, and let the run go on.",
            "list": "List checkpoints: those that wait first, then the newest.",
            "reject": "Publish nothing: its task fails, and what was current stays so.",
            "show": "Show what is to be decided: each partition with its rows, hash and checks, and what it would",
        },
    ),
    "demo": Command("servo.cli.demo", "Show what Servo does, from nothing to results."),
    "deploy": Command("servo.cli.definitions", "Make the folder's definitions take effect."),
    "doctor": Command("servo.cli.doctor", "Check this machine and this project; change nothing."),
    "init": Command("servo.cli.init", "Begin a project: a few assets that run as they stand."),
    "ledger": Noun(
        "servo.cli.ledger",
        "Verify, replay, compact, archive and export the ledger.",
        "Verify, replay, compact, archive and export the ledger.",
        {
            "archive": "Move old events to Parquet files.",
            "compact": "Fold what is new into the projections, and remove files that nobody needs any more.",
            "export": "Write events to stdout as JSON lines, from which anybody can recompute the chain.",
            "replay": "Rebuild every projection from the ledger.",
            "status": "Show where the ledger ends, and how much of it is archived and projected.",
            "verify": "Prove that nothing was changed, removed or inserted; exits with 1 if something was.",
        },
    ),
    "lineage": Noun(
        "servo.cli.lineage",
        "What partitions were made from, and what was made from them.",
        """What partitions were made from, and what was made from them; and making that anew.

        By default every hop stands on the materialization that is current now. `--as-of` takes those of then, `--exact`
        what was really read, and `--run` only what one run made and read. Without a partition, all of the asset are
        meant.
        """,
        {
            "at": "Show the lineage as it was: every hop with what was current then, and the definitions of that day.",
            "downstream": "Show what was made from partitions, hop by hop.",
            "graph": "Draw both directions around partitions: as a tree, JSON, Graphviz, Mermaid or SVG.",
            "impact": "Show what a change of partitions would reach, and how each of it stands now.",
            "invalidate": "Declare stale whatever was made from these partitions, at any distance.",
            "rematerialize": "Compute anew whatever is stale of what was made from these partitions: in order, as a",
            "upstream": "Show what partitions were made from, hop by hop.",
        },
    ),
    "materialize": Command("servo.cli.materialize", "Compute partitions of assets, and wait for them."),
    "partition": Noun(
        "servo.cli.partition",
        "The status of partitions, why it is so, and their history.",
        "The status of partitions, why it is so, their history, and the values of dynamic dimensions.",
        {
            "add": "Add values to a dynamic dimension: each is a partition from now on, of every asset that has the",
            "history": "List the materializations of a partition, newest first: which is current (→), what made each",
            "list": "List partitions, also those that the definition expects and that nothing is known of.",
            "mark": "State something about partitions: made elsewhere (materialized), left alone (frozen), or that",
            "remove": "Take values away from a dynamic dimension.",
            "rollback": "Make earlier materializations current again.",
            "stale": "List the partitions that are stale, since when, and why: of a selection, or of all assets.",
            "status": "Show what partitions are: of all assets, counted; of one, as a picture; of one partition,",
            "sweep": "Keep what is stale in a file beside the projections, so that the next answers look only at",
            "why": "Explain a partition: why it is stale, missing or failed, from what it was made, and why it did",
        },
    ),
    "plan": Command("servo.cli.materialize", "Explain what a run would do; change nothing."),
    "query": Command("servo.cli.data", "Run one SELECT over the projections."),
    "read": Command("servo.cli.data", "Show the data of an asset, now or as of then."),
    "reproduce": Command("servo.cli.reproduce", "Compute a partition again as it was, and compare."),
    "run": Noun(
        "servo.cli.run",
        "List, show, cancel and retry runs, and read their logs.",
        "List, show, cancel and retry runs, and read their logs. A run id may be shortened.",
        {
            "cancel": "Cancel a run: nothing more of it starts, and its Spark jobs are interrupted.",
            "conflicts": "List requests whose run key stands for another run: they were recorded, and started nothing.",
            "list": "List runs, newest first.",
            "logs": "Write what a run's tasks have said: their logs, and what user code wrote to stdout and stderr.",
            "retry": "Run again what failed, was skipped or cancelled, as a new run with today's definitions.",
            "show": "Show how a run stands: its tasks, what failed and which checks did not pass.",
        },
    ),
    "schedule": Noun(
        "servo.cli.schedule",
        "What starts by the clock: list, edit, pause, trigger, look ahead.",
        """What starts by the clock: list, make, edit, pause and trigger schedules, and see what they will do.

        A SCHEDULE is its name, its id, or as much of the id's beginning as no other has. They tick while `servo up` is
        there, or whenever `servo tick` is called.
        """,
        {
            "create": "Make a schedule that no code declares.",
            "delete": "Delete a schedule.",
            "list": "List schedules by name: when they fire next, and what came of the last tick.",
            "next": "Show what would fire in the days to come, and which partitions each tick would fill; write",
            "pause": "Let a schedule fire no more.",
            "resume": "Let a paused schedule fire again, from its next tick on.",
            "show": "Show one schedule: what it says, who made it, when it fires next and its last tick.",
            "ticks": "List its ticks, newest first: what came of each, how late it was, and its run.",
            "trigger": "Let a schedule tick now, whether it is paused or not.",
            "update": "Change what is given about a schedule, and nothing else.",
        },
    ),
    "sensor": Noun(
        "servo.cli.sensor",
        "What starts by itself: list, pause, evaluate, send messages.",
        """What starts when something happened: list, pause, evaluate and set back sensors, and send them messages.

        A SENSOR is its name, its id, or as much of the id's beginning as no other has. Poll sensors are evaluated while
        `servo up` is there, or whenever `servo tick` is called; messages to push sensors at once.
        """,
        {
            "create": "Make a sensor that no code declares.",
            "delete": "Take away a sensor that no code declares.",
            "evals": "List its evaluations, newest first, with what became of each run that was asked for.",
            "evaluate": "Evaluate a sensor now, by hand; this moves no cursor.",
            "list": "List sensors by name: of which kind, and what they found last.",
            "pause": "Evaluate a sensor no more.",
            "reset-cursor": "Set the cursor of a poll sensor.",
            "resume": "Evaluate a paused sensor again; a poll sensor goes on from its cursor.",
            "send": "Send a message to a push sensor, as Pub/Sub or a CloudEvent would; it is durable when this",
            "show": "Show one sensor: what it looks at, its cursor, and its last evaluation.",
        },
    ),
    "tick": Command("servo.cli.processes", "Do what is due by schedules and sensors, once, and exit."),
    "token": Noun(
        "servo.cli.token",
        "Who may ask the server: make, list and revoke tokens.",
        """Who may ask the server over the network, and for what.

        A token belongs to this tenant and workspace. Its bearer is recorded under its name. These commands work on the
        ledger itself, never through a server: who can write the ledger decides who may ask.
        """,
        {
            "create": "Make a token and show it, once: it is kept as a hash only.",
            "list": "List tokens, oldest first.",
            "revoke": "End a token, given its name or id, or the token itself where it was found.",
        },
    ),
    "up": Command("servo.cli.processes", "Run the control loop and workers until stopped."),
    "vacuum": Command("servo.cli.data", "Remove data files that no event points to."),
    "worker": Command("servo.cli.processes", "Take tasks and run them on Spark."),
}
