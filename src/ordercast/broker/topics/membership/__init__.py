"""Who takes part in a topic at this broker: how clients come, stay, and leave."""
