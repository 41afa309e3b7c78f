"""The one write-ahead log: brokers keep what they hold in it, nodes what has happened to them."""
