"""Did it hold? Reads traces only, and imports nothing of those that wrote them."""
