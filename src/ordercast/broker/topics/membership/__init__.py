"""Members of topics at this broker: how clients come, stay, and leave."""
