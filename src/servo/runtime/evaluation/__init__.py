"""Where the code of sensors and schedules is asked: processes that hang, exit or eat memory alone."""
