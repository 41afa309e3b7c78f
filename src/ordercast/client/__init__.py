"""The application's end as a machine: outbox, received-sets, history, failover. Rules BRK-C1 to BRK-C9."""
