"""`jdbc`: rows of a table or a query of any database that has a JDBC driver, read by Spark in ranges of a key."""
