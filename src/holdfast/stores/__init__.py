"""Jobs at rest: one contract, three stores. They do not know each other; `wiring` picks one."""
