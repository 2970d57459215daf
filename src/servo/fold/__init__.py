"""What events mean: the pure fold into rows."""

from servo.fold.evolve import State, evolve, fold
from servo.fold.rows import Row, merge
from servo.fold.tables import TABLES, TABLES_BY_NAME

__all__ = ["TABLES", "TABLES_BY_NAME", "Row", "State", "evolve", "fold", "merge"]
