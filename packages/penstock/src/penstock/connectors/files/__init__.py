"""`files`: folders of plain files, as a source and as an exactly-once destination."""
