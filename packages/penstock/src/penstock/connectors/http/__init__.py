"""`http`: sends records to a URL, one request for each or one for many. At least once: every request carries a key by which the
receiver knows what it has seen before."""
