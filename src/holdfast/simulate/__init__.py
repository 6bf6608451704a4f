"""An outage, played through by the code that decides in production (E75).

`scenarios` says what goes wrong, `policies` what is done about it, `world` plays one against the other and `figures` is what
came of it. Nothing here waits, calls or stores anything: time is a number, chance is given, so the same seed plays the
same game.
"""
