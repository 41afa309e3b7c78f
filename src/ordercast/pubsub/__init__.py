"""The words that brokers and clients share: publications, received-sets, topic filters, settings, packets."""
