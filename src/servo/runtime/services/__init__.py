"""Operations whose handlers still need the whole project, by noun; all others are in `servo.operations`."""
