"""Groups of consumers: who reads which partitions, and how far they have got."""
