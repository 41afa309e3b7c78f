"""The application's end as a machine: outbox, received-sets, history, failover. Rules C1 to C9 of the broker page."""
