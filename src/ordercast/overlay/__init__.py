"""(1) Who is next to whom: graphs, and the groups laid over them."""
