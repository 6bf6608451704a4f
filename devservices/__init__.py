"""Private servers for development: PostgreSQL, PgBouncer, RabbitMQ, Redis, NATS, S3, and a proxy that injects faults.

Tests, benchmarks and `make run` share them. They are not part of the package that users install.

    with Postgres() as server:             # a temporary server: nothing of it is left afterwards
        url = server.create_database("orders")

    with RabbitMq(Path("data/rabbitmq")):  # data and password are kept in this folder

Every server listens on 127.0.0.1 only, on a free port, and asks for a password. `make run` installs few
packages, so these modules import others only where they use them.
"""
