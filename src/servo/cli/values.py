"""Values of a query's rows, as JSON and as text."""

from servo.answers.values import moment, plain, text

__all__ = ["moment", "plain", "text"]
