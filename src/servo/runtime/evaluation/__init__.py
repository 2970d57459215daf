"""Evaluation of the code of sensors and schedules, in processes that may hang, exit or eat memory."""
